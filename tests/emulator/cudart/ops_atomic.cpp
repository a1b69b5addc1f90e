// Atomics (PTX ISA, "atom", "red"): each lane in turn, with an atomic of the host, so that blocks on other threads and
// the host itself may take part.
#include <string>

#include "access.hpp"
#include "bind.hpp"
#include "formats.hpp"

namespace ptxemu {
namespace {
enum class Action : u8 {
    add,
    exchange,
    compare,
    smaller,
    larger,
    bit_and,
    bit_or,
    bit_xor,
    increment,
    decrement,
    none
};

Action action_of(const Decoder& decoder) {
    static const std::unordered_map<std::string, Action> names{
        {"add", Action::add},       {"exch", Action::exchange}, {"cas", Action::compare}, {"min", Action::smaller},
        {"max", Action::larger},    {"and", Action::bit_and},   {"or", Action::bit_or},   {"xor", Action::bit_xor},
        {"inc", Action::increment}, {"dec", Action::decrement}};
    for (const std::string& mod : decoder.statement().mods) {
        const auto found = names.find(mod);
        if (found != names.end()) return found->second;
    }
    return Action::none;
}

template <class Raw>
Raw sum(Raw a, Raw b, Type type) {
    const auto half = [](u64 x, u64 y) -> u64 {
        return double_to_half(double{half_to_float(static_cast<u16>(x))} + half_to_float(static_cast<u16>(y)));
    };
    const auto bfloat = [](u64 x, u64 y) -> u64 {
        return double_to_bf16(double{bf16_to_float(static_cast<u16>(x))} + bf16_to_float(static_cast<u16>(y)));
    };
    switch (type) {
        case Type::f32:
            return static_cast<Raw>(
                bit_cast<u32>(bit_cast<float>(static_cast<u32>(a)) + bit_cast<float>(static_cast<u32>(b))));
        case Type::f64:
            return static_cast<Raw>(bit_cast<u64>(bit_cast<double>(u64{a}) + bit_cast<double>(u64{b})));
        case Type::f16:
            return static_cast<Raw>(half(a, b));
        case Type::bf16:
            return static_cast<Raw>(bfloat(a, b));
        case Type::f16x2:
            return static_cast<Raw>(half(a, b) | half(u64{a} >> 16, u64{b} >> 16) << 16);
        case Type::bf16x2:
            return static_cast<Raw>(bfloat(a, b) | bfloat(u64{a} >> 16, u64{b} >> 16) << 16);
        default:
            return static_cast<Raw>(a + b);
    }
}

template <class Raw>
Raw changed(Action action, Raw old, Raw b, Raw c, Type type) {
    using Signed = std::make_signed_t<Raw>;
    const bool less = is_signed(type) ? static_cast<Signed>(old) < static_cast<Signed>(b) : old < b;
    switch (action) {
        case Action::add:
            return sum<Raw>(old, b, type);
        case Action::exchange:
            return b;
        case Action::compare:
            return old == b ? c : old;
        case Action::smaller:
            return less ? old : b;
        case Action::larger:
            return less ? b : old;
        case Action::bit_and:
            return old & b;
        case Action::bit_or:
            return old | b;
        case Action::bit_xor:
            return old ^ b;
        case Action::increment:
            return old >= b ? 0 : static_cast<Raw>(old + 1);
        default:
            return old == 0 || old > b ? b : static_cast<Raw>(old - 1);
    }
}

template <class Raw>
void run_atomic(Warp& warp, const Instruction& instruction) {
    LaneAddresses addresses;
    const u32 bytes = sizeof(Raw) * instruction.elements;
    resolve(warp, instruction.in[0], instruction.offset, instruction.space, bytes, Use::atomic, &addresses);
    const Action action = static_cast<Action>(instruction.mode);
    for (u32 rest = warp.mask; rest != 0; rest &= rest - 1) {
        const int lane = __builtin_ctz(rest);
        for (std::size_t i = 0; i < instruction.many_in.size(); ++i) {
            Raw* const at = reinterpret_cast<Raw*>(addresses.at[lane]) + i;
            const Raw b = static_cast<Raw>(warp.value(instruction.many_in[i], lane));
            const Raw c = action == Action::compare ? static_cast<Raw>(warp.value(instruction.in[1], lane)) : Raw{0};
            Raw old = __atomic_load_n(at, __ATOMIC_RELAXED);
            while (!__atomic_compare_exchange_n(at, &old, changed<Raw>(action, old, b, c, instruction.type), false,
                                                __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
            }
            if (i < instruction.many_out.size()) warp.set(instruction.many_out[i], lane, old);
        }
    }
}
}  // namespace

bool bind_atomic(Decoder& decoder, const std::string&) {
    const std::string& op = decoder.statement().op;
    if ((op != "atom" && op != "red") || decoder.has("async")) return false;
    Instruction& instruction = decoder.instruction();
    const std::size_t first = op == "atom" ? 1 : 0;
    const Action action = action_of(decoder);
    if (action == Action::none) decoder.unknown("atomic");
    instruction.mode = static_cast<u8>(action);
    instruction.elements = decoder.has("v8") ? 8 : decoder.has("v4") ? 4 : decoder.has("v2") ? 2 : 1;
    decoder.address(decoder.operand(first), 0, decoder.space());
    const auto each = [](const Operand& operand, const auto& take) {
        if (operand.kind != Operand::Kind::vector) return take(operand);
        for (const Operand& part : operand.parts) take(part);
    };
    each(decoder.operand(first + 1),
         [&](const Operand& part) { instruction.many_in.push_back(decoder.any_source(part, decoder.type())); });
    if (op == "atom")
        each(decoder.operand(0),
             [&](const Operand& part) { instruction.many_out.push_back(decoder.any_target(part)); });
    if (action == Action::compare) instruction.in[1] = decoder.any_source(decoder.operand(first + 2), decoder.type());
    switch (size_bytes(decoder.type())) {
        case 2:
            instruction.run = run_atomic<u16>;
            break;
        case 4:
            instruction.run = run_atomic<u32>;
            break;
        case 8:
            instruction.run = run_atomic<u64>;
            break;
        default:
            decoder.unknown("type");
    }
    return true;
}
}  // namespace ptxemu
