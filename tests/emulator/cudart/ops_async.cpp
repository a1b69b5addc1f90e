// Asynchronous copies (PTX ISA, "cp.async"): shared memory holds ones until the copy is waited for, so that a kernel
// that forgets to wait computes NaN.
#include <algorithm>

#include "access.hpp"
#include "bind.hpp"
#include "block.hpp"

namespace ptxemu {
namespace {
void run_copy(Warp& warp, const Instruction& instruction) {
    const u32 bytes = static_cast<u32>(instruction.immediate);
    LaneAddresses to;
    resolve(warp, instruction.in[0], instruction.offset, Space::shared, bytes, Use::store, &to);
    Tally& tally = warp.block->worker->tally;
    for (u32 rest = warp.mask; rest != 0; rest &= rest - 1) {
        const int lane = __builtin_ctz(rest);
        u32 filled =
            instruction.mode == 1 ? std::min(static_cast<u32>(warp.value(instruction.in[2], lane)), bytes) : bytes;
        if (instruction.mode == 2 && (warp.predicate(instruction.in[2]) >> lane & 1) != 0) filled = 0;
        const u64 address = warp.value(instruction.in[1], lane) + instruction.target;
        const u8* from = filled == 0 ? nullptr : resolve_lane(warp, lane, address, Space::global, filled, Use::load);
        u8* const place = reinterpret_cast<u8*>(to.at[lane]);
        std::fill(place, place + bytes, 0xff);
        const auto number = static_cast<std::size_t>(lane);
        warp.copies.push_back(PendingCopy{place, from, bytes, filled, static_cast<u32>(lane), warp.copy_group[number]});
        tally.loaded[static_cast<std::size_t>(Space::global)] += filled;
        tally.stored[static_cast<std::size_t>(Space::shared)] += bytes;
    }
}

void run_commit(Warp& warp, const Instruction&) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) warp.copy_group[lane] += warp.mask >> lane & 1;
}

// Completes all groups of a lane but its last `immediate` committed ones; mode 1: also what is not committed.
void run_wait(Warp& warp, const Instruction& instruction) {
    const auto due = [&](const PendingCopy& copy) {
        const u64 groups = warp.copy_group[copy.lane];
        if ((warp.mask >> copy.lane & 1) == 0) return false;
        return instruction.mode == 1 || copy.group + instruction.immediate < groups;
    };
    for (const PendingCopy& copy : warp.copies) {
        if (!due(copy)) continue;
        if (copy.filled != 0) std::memcpy(copy.to, copy.from, copy.filled);
        std::memset(copy.to + copy.filled, 0, copy.bytes - copy.filled);
    }
    warp.copies.erase(std::remove_if(warp.copies.begin(), warp.copies.end(), due), warp.copies.end());
}

void bind_copy(Decoder& decoder) {
    Instruction& instruction = decoder.instruction();
    decoder.address(decoder.operand(1), 1, Space::global);
    instruction.target = static_cast<u32>(instruction.offset);
    decoder.address(decoder.operand(0), 0, Space::shared);
    instruction.immediate = decoder.operand(2).bits;
    if (decoder.operands() > 3 && !decoder.has("L2::cache_hint")) {
        const Operand& fourth = decoder.operand(3);
        instruction.mode = decoder.is_predicate(fourth) ? 2 : 1;
        instruction.in[2] = instruction.mode == 2 ? decoder.predicate(fourth) : decoder.any_source(fourth, Type::u32);
    }
    instruction.run = run_copy;
}
}  // namespace

bool bind_async(Decoder& decoder, const std::string&) {
    const Statement& statement = decoder.statement();
    if (statement.op != "cp" || statement.mods.size() < 2 || statement.mods[0] != "async") return false;
    const std::string& what = statement.mods[1];
    Instruction& instruction = decoder.instruction();
    if (what == "commit_group") {
        instruction.run = run_commit;
    } else if (what == "wait_group") {
        instruction.immediate = decoder.operand(0).bits;
        instruction.run = run_wait;
    } else if (what == "wait_all") {
        instruction.mode = 1;
        instruction.run = run_wait;
    } else if (what == "ca" || what == "cg") {
        bind_copy(decoder);
    } else {
        return false;
    }
    return true;
}
}  // namespace ptxemu
