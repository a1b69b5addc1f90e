#include "warp.hpp"

#include <algorithm>

#include "bind.hpp"
#include "block.hpp"
#include "fault.hpp"
#include "special.hpp"

namespace ptxemu {
namespace {
constexpr u32 kNowhere = ~0u;

u8* aligned(std::vector<u8>* store, u64 bytes) {
    store->resize(bytes + 64);
    return reinterpret_cast<u8*>(round_up(reinterpret_cast<u64>(store->data()), 64));
}
}  // namespace

void Warp::start(Block* of, u32 number, u32 threads) {
    const Program& program = *of->launch->program;
    block = of;
    index = number;
    live = threads == kLanes ? kEveryLane : (1u << threads) - 1;
    at_barrier = waiting = carry = mask = 0;
    pc.fill(program.entry);
    copies.clear();
    copy_group.fill(0);
    for (std::vector<u32>& stack : calls_) stack.clear();
    registers = aligned(&file_, program.register_bytes);
    std::memset(registers, 0xff, program.register_bytes);  // NaN, so that a register read before it is written shows
    predicate_file_.assign(program.predicates, 0);
    predicates = predicate_file_.data();
    local = aligned(&local_file_, program.local_bytes * kLanes);
    std::memset(local, 0xff, program.local_bytes * kLanes);
    for (const SpecialRegister& special : program.specials) {  // as 64-bit lanes and, behind them, 32-bit lanes
        u64* const wide = reinterpret_cast<u64*>(registers + special.at);
        read_special(special.id, *this, wide);
        for (int lane = 0; lane < kLanes; ++lane)
            reinterpret_cast<u32*>(wide + kLanes)[lane] = static_cast<u32>(wide[lane]);
    }
}

Warp::Group Warp::lowest(u32 lanes) const {
    Group group{kNowhere, 0, kNowhere};
    for (u32 rest = lanes; rest != 0; rest &= rest - 1) {
        const int lane = __builtin_ctz(rest);
        const u32 at = pc[static_cast<std::size_t>(lane)];
        if (at < group.pc) {
            group.limit = group.pc;
            group.pc = at;
            group.lanes = 0;
        } else if (at > group.pc) {
            group.limit = std::min(group.limit, at);
        }
        if (at == group.pc) group.lanes |= 1u << lane;
    }
    return group;
}

void Warp::leave(u32 lanes, u32 at) {
    for (u32 rest = lanes; rest != 0; rest &= rest - 1) pc[static_cast<std::size_t>(__builtin_ctz(rest))] = at;
}

void Warp::run(long turns) {
    budget = turns;
    while (budget > 0) {
        const u32 ready = live & ~at_barrier & ~waiting;
        if (ready != 0) {
            --budget;  // a group that stops at once has moved, too
            run_group(lowest(ready));
        } else if (!wake()) {
            return;
        }
    }
}

// Runs one group of lanes until it meets others, divides, stops or the turn is over.
void Warp::run_group(Group group) {
    const Instruction* const code = block->launch->program->code.data();
    u64* const executed = block->worker->tally.executed.data();
    while (true) {
        const Instruction& instruction = code[group.pc];
        current = &instruction;
        if (instruction.control == Control::none) {
            mask = group.lanes;
            if (instruction.guard != kNoGuard) mask &= predicates[instruction.guard] ^ instruction.guard_flip;
            if (mask != 0) {
                executed[group.pc] += static_cast<u64>(__builtin_popcount(mask));
                instruction.run(*this, instruction);
            }
            ++group.pc;
        } else if (!step_control(instruction, &group)) {
            return;
        }
        if (--budget <= 0 || group.pc >= group.limit) {
            leave(group.lanes, group.pc);
            return;
        }
    }
}

// One instruction that may change who runs where; false when the group has to be chosen anew.
bool Warp::step_control(const Instruction& instruction, Group* group) {
    const u32 guard =
        instruction.guard == kNoGuard ? kEveryLane : predicates[instruction.guard] ^ instruction.guard_flip;
    const u32 taken = group->lanes & guard;
    mask = taken;
    if (instruction.control != Control::warp_sync) {
        block->worker->tally.executed[group->pc] += static_cast<u64>(__builtin_popcount(taken));
    }
    if (instruction.control == Control::branch) return branch(taken, instruction.target, group);
    leave(taken, group->pc);
    if (taken != group->lanes) {  // the others go on by themselves
        leave(group->lanes & ~taken, group->pc + 1);
        if (taken == 0) return false;
        group->lanes = taken;
        group->limit = std::min(group->limit, group->pc + 1);
    }
    switch (instruction.control) {
        case Control::warp_sync:
            return meet(instruction, group);
        case Control::exit:
            live &= ~taken;
            return false;
        case Control::call:
        case Control::ret:
        case Control::branch_table:
            jump(instruction, taken);
            return false;
        default:
            arrive(instruction, taken);
            return false;
    }
}

void Warp::jump(const Instruction& instruction, u32 lanes) {
    for (u32 rest = lanes; rest != 0; rest &= rest - 1) {
        const auto lane = static_cast<std::size_t>(__builtin_ctz(rest));
        if (instruction.control == Control::call) {
            calls_[lane].push_back(pc[lane] + 1);
            pc[lane] = instruction.target;
        } else if (instruction.control == Control::ret) {
            pc[lane] = calls_[lane].back();
            calls_[lane].pop_back();
        } else {
            const u64 choice = value(instruction.in[0], static_cast<int>(lane));
            if (choice >= instruction.targets.size()) throw Fault(kIllegalInstruction, "branch index out of range");
            pc[lane] = instruction.targets[choice];
        }
    }
}

// A block barrier: counts the lanes and, unless they only arrive, makes them wait.
void Warp::arrive(const Instruction& instruction, u32 lanes) {
    const int first = __builtin_ctz(lanes);
    const u64 number = value(instruction.in[0], first);
    if (number >= block->barriers.size()) throw Fault(kIllegalInstruction, "barrier number out of range");
    Barrier& barrier = block->barriers[number];
    barrier.expected = static_cast<u32>(value(instruction.in[1], first));
    if (instruction.mode != 0) {
        barrier.votes += static_cast<u32>(__builtin_popcount(predicate(instruction.in[2]) & lanes));
        barrier.voters += static_cast<u32>(__builtin_popcount(lanes));
    }
    for (u32 rest = lanes; rest != 0; rest &= rest - 1) {
        const auto lane = static_cast<std::size_t>(__builtin_ctz(rest));
        ++pc[lane];
        barrier_of[lane] = static_cast<u8>(number);
    }
    if (instruction.target != 0) {
        barrier.arrived += static_cast<u32>(__builtin_popcount(lanes));
    } else {
        at_barrier |= lanes;
    }
}

bool Warp::branch(u32 taken, u32 target, Group* group) {
    if (taken == group->lanes) {
        group->pc = target;
        return true;
    }
    if (taken == 0) {
        ++group->pc;
        return true;
    }
    leave(taken, target);
    leave(group->lanes & ~taken, group->pc + 1);
    return false;
}

// A warp-synchronous instruction: runs when all live lanes that its mask names have come to it, else the group waits.
bool Warp::meet(const Instruction& instruction, Group* group) {
    u32 here = group->lanes;
    for (u32 rest = waiting; rest != 0; rest &= rest - 1) {
        const int lane = __builtin_ctz(rest);
        if (pc[static_cast<std::size_t>(lane)] == group->pc) here |= 1u << lane;
    }
    const u32 wanted = static_cast<u32>(value(instruction.in[4], __builtin_ctz(group->lanes)));
    if ((wanted & live & ~here) != 0) {
        leave(group->lanes, group->pc);
        waiting |= group->lanes;
        return false;
    }
    const u32 together = here & (wanted | group->lanes);
    waiting &= ~together;
    mask = together;
    block->worker->tally.executed[group->pc] += static_cast<u64>(__builtin_popcount(mask));
    instruction.run(*this, instruction);
    leave(together, group->pc + 1);
    if (together != group->lanes) return false;
    ++group->pc;
    return true;
}

// Nobody can run: lets a group go on whose missing lanes have exited since it began to wait.
bool Warp::wake() {
    const Instruction* const code = block->launch->program->code.data();
    for (u32 rest = waiting; rest != 0;) {
        const Group group = lowest(rest);
        rest &= ~group.lanes;
        const u32 wanted = static_cast<u32>(value(code[group.pc].in[4], __builtin_ctz(group.lanes)));
        if ((wanted & live & ~group.lanes) != 0) continue;
        waiting &= ~group.lanes;
        return true;
    }
    return false;
}
}  // namespace ptxemu
