// Fences, sleeping, traps, block barriers, and hints that change no value.
#include <time.h>

#include <algorithm>
#include <set>

#include "bind.hpp"
#include "block.hpp"
#include "fault.hpp"

namespace ptxemu {
namespace {
void run_fence(Warp&, const Instruction&) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void run_nothing(Warp&, const Instruction&) {}
void run_trap(Warp&, const Instruction&) { throw Fault(kLaunchFailure, "trap"); }

void run_sleep(Warp& warp, const Instruction& instruction) {
    u64 longest = 0;
    for (int lane = 0; lane < kLanes; ++lane) {
        if (warp.on(lane)) longest = std::max(longest, warp.value(instruction.in[0], lane));
    }
    const timespec time{static_cast<time_t>(longest / 1000000000u), static_cast<long>(longest % 1000000000u)};
    nanosleep(&time, nullptr);
    warp.budget = 0;  // let the others of the block go on
}

void run_zero(Warp& warp, const Instruction& instruction) {
    for (int lane = 0; lane < kLanes; ++lane) {
        if (warp.on(lane)) warp.set(instruction.out, lane, 0);
    }
}

// bar.red: what all threads' predicates came to, in the lanes that the block has just released.
u32 reduced(const Instruction& instruction, const Barrier& barrier) {
    if (instruction.mode == 1) return barrier.votes == barrier.voters ? kEveryLane : 0;
    if (instruction.mode == 2) return barrier.votes != 0 ? kEveryLane : 0;
    return barrier.votes;
}
}  // namespace

void give_barrier_result(Warp& warp, const Instruction& instruction, u32 lanes, const Barrier& barrier) {
    const u32 value = reduced(instruction, barrier);
    warp.mask = lanes;
    if (instruction.mode == 3) {
        for (int lane = 0; lane < kLanes; ++lane) {
            if (warp.on(lane)) warp.set(instruction.out, lane, value);
        }
    } else {
        warp.set_predicate(instruction.out.at, value);
    }
}

// bar{rier}{.cta}.{sync, arrive, red}: in[0] the barrier, in[1] the threads expected (0: all), in[2] a predicate;
// target 1 for arrive, mode 1 to 3 for red.and, red.or and red.popc.
void bind_barrier(Decoder& decoder) {
    Instruction& instruction = decoder.instruction();
    instruction.control = Control::block_barrier;
    std::size_t next = 0;
    if (decoder.has("red")) {
        instruction.mode = decoder.has("and") ? 1 : decoder.has("or") ? 2 : 3;
        const Operand& out = decoder.operand(next++);
        if (instruction.mode == 3) instruction.out = decoder.any_target(out);
        if (instruction.mode != 3) instruction.out.at = decoder.predicate_target(out);
    }
    instruction.target = decoder.has("arrive") ? 1 : 0;
    instruction.in[0] = decoder.any_source(decoder.operand(next++), Type::u32);
    const std::size_t rest = decoder.operands() - next - (instruction.mode != 0 ? 1 : 0);
    Operand none;
    none.kind = Operand::Kind::immediate;
    instruction.in[1] = decoder.any_source(rest != 0 ? decoder.operand(next++) : none, Type::u32);
    if (instruction.mode != 0) instruction.in[2] = decoder.predicate(decoder.operand(next));
}

bool bind_other(Decoder& decoder, const std::string&) {
    static const std::set<std::string> hints{"prefetch",       "prefetchu", "discard",   "applypriority",
                                             "griddepcontrol", "pmevent",   "setmaxnreg"};
    const std::string& op = decoder.statement().op;
    Instruction& instruction = decoder.instruction();
    if (op == "membar" || (op == "fence" && !decoder.has("proxy"))) {
        instruction.run = run_fence;
    } else if (op == "nanosleep") {
        instruction.in[0] = decoder.any_source(decoder.operand(0), Type::u32);
        instruction.run = run_sleep;
    } else if (op == "trap" || op == "brkpt") {
        instruction.run = run_trap;
    } else if (op == "createpolicy") {
        instruction.out = decoder.any_target(decoder.operand(0));
        instruction.run = run_zero;
    } else if (hints.count(op) != 0 || op == "fence") {
        instruction.run = run_nothing;
    } else {
        return false;
    }
    return true;
}
}  // namespace ptxemu
