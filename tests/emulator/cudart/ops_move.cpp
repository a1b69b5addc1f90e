// Moves, packing, addresses (PTX ISA, "Data Movement": mov, cvta, isspacep).
#include "bind.hpp"
#include "block.hpp"
#include "special.hpp"

namespace ptxemu {
namespace {
template <class T>
T same(T a) {
    return a;
}

template <class S>
void run_clock(Warp& warp, const Instruction& instruction) {
    const u64 now = read_clock(static_cast<int>(instruction.immediate));
    for (int lane = 0; lane < kLanes; ++lane) {
        if (warp.on(lane)) warp.target<S>(instruction.out)[lane] = static_cast<S>(now);
    }
}

void run_pack(Warp& warp, const Instruction& instruction) {  // d = {a, b, ...}, the first in the low bits
    const unsigned width = 8 * size_bytes(instruction.type) / static_cast<unsigned>(instruction.many_in.size());
    for (int lane = 0; lane < kLanes; ++lane) {
        if (!warp.on(lane)) continue;
        u64 bits = 0;
        for (std::size_t i = 0; i < instruction.many_in.size(); ++i) {
            bits |= (warp.value(instruction.many_in[i], lane) & (~u64{0} >> (64 - width))) << (i * width);
        }
        warp.set(instruction.out, lane, bits);
    }
}

void run_unpack(Warp& warp, const Instruction& instruction) {
    const unsigned width = 8 * size_bytes(instruction.type) / static_cast<unsigned>(instruction.many_out.size());
    for (int lane = 0; lane < kLanes; ++lane) {
        if (!warp.on(lane)) continue;
        const u64 bits = warp.value(instruction.in[0], lane);
        for (std::size_t i = 0; i < instruction.many_out.size(); ++i) {
            warp.set(instruction.many_out[i], lane, bits >> (i * width) & (~u64{0} >> (64 - width)));
        }
    }
}

void run_predicate(Warp& warp, const Instruction& instruction) {
    warp.set_predicate(instruction.out.at, warp.predicate(instruction.in[0]));
}

void bind_mov(Decoder& decoder) {
    Instruction& instruction = decoder.instruction();
    const Operand& out = decoder.operand(0);
    const Operand& in = decoder.operand(1);
    const Type type = decoder.type();
    const bool wide = size_bytes(type) == 8;
    if (size_bytes(type) > 8) decoder.unknown("type");
    const int special = in.kind == Operand::Kind::name ? special_named(in.name) : -1;
    if (type == Type::pred) {
        instruction.in[0] = decoder.predicate(in);
        instruction.out.at = decoder.predicate_target(out);
        instruction.run = run_predicate;
    } else if (special >= 0 && is_clock(special)) {
        instruction.immediate = static_cast<u64>(special);
        instruction.out = decoder.target(out, wide ? 64 : 32);
        instruction.run = wide ? run_clock<u64> : run_clock<u32>;
    } else if (out.kind == Operand::Kind::vector) {
        for (const Operand& part : out.parts) instruction.many_out.push_back(decoder.any_target(part));
        instruction.in[0] = decoder.any_source(in, type);
        instruction.run = run_unpack;
    } else if (in.kind == Operand::Kind::vector) {
        const Type part_type = type == Type::b64 && in.parts.size() == 2 ? Type::b32 : Type::b16;
        for (const Operand& part : in.parts) instruction.many_in.push_back(decoder.any_source(part, part_type));
        instruction.out = decoder.any_target(out);
        instruction.run = run_pack;
    } else {
        wide ? bind<same<u64>>(decoder) : bind<same<u32>>(decoder);
    }
}

// Between generic addresses and those of a space. Global memory and constants have one address for both.
void run_cvta(Warp& warp, const Instruction& instruction) {
    const Launch& launch = *warp.block->launch;
    for (int lane = 0; lane < kLanes; ++lane) {
        if (!warp.on(lane)) continue;
        u64 base = 0;
        if (instruction.space == Space::shared) base = reinterpret_cast<u64>(warp.block->shared);
        if (instruction.space == Space::local)
            base = reinterpret_cast<u64>(warp.local) + static_cast<u64>(lane) * launch.program->local_bytes;
        if (instruction.space == Space::param) base = reinterpret_cast<u64>(launch.parameters.data());
        const u64 address = warp.value(instruction.in[0], lane);
        warp.set(instruction.out, lane, instruction.mode != 0 ? address - base : address + base);
    }
}

void run_isspacep(Warp& warp, const Instruction& instruction) {
    const Block& block = *warp.block;
    const u64 local_bytes = block.launch->program->local_bytes * kLanes;
    u32 mask = 0;
    for (int lane = 0; lane < kLanes; ++lane) {
        const u64 address = warp.value(instruction.in[0], lane);
        const bool shared = address - reinterpret_cast<u64>(block.shared) < block.shared_bytes;
        const bool local = address - reinterpret_cast<u64>(warp.local) < local_bytes;
        const bool found = instruction.space == Space::shared  ? shared
                           : instruction.space == Space::local ? local
                                                               : !shared && !local;
        mask |= static_cast<u32>(found) << lane;
    }
    warp.set_predicate(instruction.out.at, mask);
}
}  // namespace

bool bind_move(Decoder& decoder, const std::string&) {
    const std::string& op = decoder.statement().op;
    Instruction& instruction = decoder.instruction();
    if (op == "mov") {
        bind_mov(decoder);
    } else if (op == "cvta") {
        instruction.space = decoder.space();
        instruction.mode = decoder.has("to") ? 1 : 0;
        instruction.in[0] = decoder.any_source(decoder.operand(1), Type::u64);
        instruction.out = decoder.any_target(decoder.operand(0));
        instruction.run = run_cvta;
    } else if (op == "isspacep") {
        instruction.space = decoder.space();
        instruction.in[0] = decoder.any_source(decoder.operand(1), Type::u64);
        instruction.out.at = decoder.predicate_target(decoder.operand(0));
        instruction.run = run_isspacep;
    } else {
        return false;
    }
    return true;
}
}  // namespace ptxemu
