// Loads and stores, single and in vectors (PTX ISA, "ld", "st"). Each element is read or written at once, so that a
// host thread beside the kernel sees whole values.
#include "access.hpp"
#include "bind.hpp"
#include "fault.hpp"

namespace ptxemu {
namespace {
template <class T, class S>
void load_element(Warp& warp, const u64* addresses, u64 offset, S* out) {
    const auto read = [&](int lane) {
        using Raw = std::make_unsigned_t<T>;
        const Raw bits = __atomic_load_n(reinterpret_cast<const Raw*>(addresses[lane] + offset), __ATOMIC_RELAXED);
        return static_cast<S>(
            static_cast<std::conditional_t<std::is_signed_v<T>, std::make_signed_t<S>, S>>(static_cast<T>(bits)));
    };
    if (warp.mask == kEveryLane) {
        for (int lane = 0; lane < kLanes; ++lane) out[lane] = read(lane);
        return;
    }
    for (u32 rest = warp.mask; rest != 0; rest &= rest - 1) {
        const int lane = __builtin_ctz(rest);
        out[lane] = read(lane);
    }
}

template <class T>
void run_load(Warp& warp, const Instruction& instruction) {
    LaneAddresses addresses;
    const u32 bytes = sizeof(T) * instruction.elements;
    resolve(warp, instruction.in[0], instruction.offset, instruction.space, bytes, Use::load, &addresses);
    for (std::size_t i = 0; i < instruction.many_out.size(); ++i) {
        const Target out = instruction.many_out[i];
        if (out.wide) {
            load_element<T>(warp, addresses.at, i * sizeof(T), warp.target<u64>(out));
        } else {
            load_element<T>(warp, addresses.at, i * sizeof(T), warp.target<u32>(out));
        }
    }
}

template <class T, class S>
void store_element(Warp& warp, const u64* addresses, u64 offset, const S* values) {
    if (warp.mask == kEveryLane) {
        for (int lane = 0; lane < kLanes; ++lane) {
            __atomic_store_n(reinterpret_cast<T*>(addresses[lane] + offset), static_cast<T>(values[lane]),
                             __ATOMIC_RELAXED);
        }
        return;
    }
    for (u32 rest = warp.mask; rest != 0; rest &= rest - 1) {
        const int lane = __builtin_ctz(rest);
        __atomic_store_n(reinterpret_cast<T*>(addresses[lane] + offset), static_cast<T>(values[lane]),
                         __ATOMIC_RELAXED);
    }
}

template <class T>
void run_store(Warp& warp, const Instruction& instruction) {
    LaneAddresses addresses;
    const u32 bytes = sizeof(T) * instruction.elements;
    resolve(warp, instruction.in[0], instruction.offset, instruction.space, bytes, Use::store, &addresses);
    for (std::size_t i = 0; i < instruction.many_in.size(); ++i) {
        const Source& in = instruction.many_in[i];
        if (in.wide) {
            store_element<T>(warp, addresses.at, i * sizeof(T), warp.source<u64>(in));
        } else {
            store_element<T>(warp, addresses.at, i * sizeof(T), warp.source<u32>(in));
        }
    }
}

Handler load_of(Type type) {
    switch (size_bytes(type)) {
        case 1:
            return is_signed(type) ? run_load<s8> : run_load<u8>;
        case 2:
            return is_signed(type) ? run_load<s16> : run_load<u16>;
        case 4:
            return is_signed(type) ? run_load<s32> : run_load<u32>;
        case 8:
            return run_load<u64>;
        default:
            return nullptr;
    }
}

Handler store_of(Type type) {
    switch (size_bytes(type)) {
        case 1:
            return run_store<u8>;
        case 2:
            return run_store<u16>;
        case 4:
            return run_store<u32>;
        case 8:
            return run_store<u64>;
        default:
            return nullptr;
    }
}

std::vector<const Operand*> parts_of(const Operand& operand) {
    std::vector<const Operand*> parts;
    if (operand.kind != Operand::Kind::vector) return {&operand};
    for (const Operand& part : operand.parts) parts.push_back(&part);
    return parts;
}

u8 elements_of(const Decoder& decoder) {
    return decoder.has("v8") ? 8 : decoder.has("v4") ? 4 : decoder.has("v2") ? 2 : 1;
}
}  // namespace

bool bind_memory(Decoder& decoder, const std::string&) {
    const std::string& op = decoder.statement().op;
    const bool load = op == "ld" || op == "ldu", store = op == "st";
    if (!load && !store) return false;
    if (decoder.has("async")) decoder.unknown("instruction");
    Instruction& instruction = decoder.instruction();
    instruction.elements = elements_of(decoder);
    decoder.address(decoder.operand(load ? 1 : 0), 0, decoder.space());
    const std::vector<const Operand*> parts = parts_of(decoder.operand(load ? 0 : 1));
    if (parts.size() != instruction.elements) decoder.unknown("vector");
    for (const Operand* part : parts) {
        if (load) instruction.many_out.push_back(decoder.any_target(*part));
        if (store) instruction.many_in.push_back(decoder.any_source(*part, decoder.type()));
    }
    instruction.run = load ? load_of(decoder.type()) : store_of(decoder.type());
    if (instruction.run == nullptr) decoder.unknown("type");
    return true;
}
}  // namespace ptxemu
