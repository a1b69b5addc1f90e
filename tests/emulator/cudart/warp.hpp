// A warp: 32 lanes in lock-step with a program counter each, run by lowest counter first so that they meet again.
#pragma once
#include <array>
#include <memory>
#include <vector>

#include "program.hpp"

namespace ptxemu {
struct Block;

// An asynchronous copy (cp.async) that has been issued and not been waited for.
struct PendingCopy {
    u8* to;
    const u8* from;
    u32 bytes;   // to write
    u32 filled;  // of those, taken from `from`; the rest is zero
    u32 lane;
    u64 group;
};

class alignas(64) Warp {
  public:
    void start(Block* block, u32 index, u32 threads);
    // Runs until it is done, blocked at a block barrier, or `budget` instructions are spent.
    void run(long budget);
    bool done() const { return live == 0; }

    // The lanes of an operand. S is u32 or u64, as wide as the register is.
    template <class S>
    const S* source(const Source& operand) const {
        const void* base = operand.constant != nullptr ? operand.constant : registers + operand.at;
        return static_cast<const S*>(__builtin_assume_aligned(base, 64));
    }
    template <class S>
    S* target(const Target& operand) {
        return static_cast<S*>(__builtin_assume_aligned(registers + operand.at, 64));
    }
    u32 predicate(const Source& operand) const {
        const u32 value =
            operand.constant != nullptr ? *static_cast<const u32*>(operand.constant) : predicates[operand.at];
        return operand.negated ? ~value : value;
    }
    void set_predicate(u32 number, u32 value) { predicates[number] = (predicates[number] & ~mask) | (value & mask); }
    u64 value(const Source& operand, int lane) const {
        return operand.wide ? source<u64>(operand)[lane] : source<u32>(operand)[lane];
    }
    void set(const Target& operand, int lane, u64 bits) {
        if (operand.wide) {
            target<u64>(operand)[lane] = bits;
        } else {
            target<u32>(operand)[lane] = static_cast<u32>(bits);
        }
    }
    bool on(int lane) const { return (mask >> lane & 1) != 0; }

    Block* block = nullptr;
    u32 index = 0;
    u32 mask = 0;        // lanes that the present instruction is executed for
    u32 live = 0;        // lanes that have not exited
    u32 at_barrier = 0;  // lanes that wait at a block barrier
    u32 waiting = 0;     // lanes that wait for others of the warp
    u32 carry = 0;       // the condition code register's carry flag, one bit a lane
    long budget = 0;     // instructions left in this turn
    u8* registers = nullptr;
    u32* predicates = nullptr;
    u8* local = nullptr;
    std::array<u32, kLanes> pc{};
    std::array<u8, kLanes> barrier_of{};   // the barrier that the lane waits at
    const Instruction* current = nullptr;  // for messages
    std::vector<PendingCopy> copies;
    std::array<u64, kLanes> copy_group{};

  private:
    struct Group {
        u32 pc;
        u32 lanes;
        u32 limit;  // where other lanes stand next
    };
    Group lowest(u32 lanes) const;
    void run_group(Group group);
    bool step_control(const Instruction& instruction, Group* group);
    bool branch(u32 taken, u32 target, Group* group);
    bool meet(const Instruction& instruction, Group* group);
    bool wake();
    void jump(const Instruction& instruction, u32 lanes);
    void arrive(const Instruction& instruction, u32 lanes);
    void leave(u32 lanes, u32 at);
    std::array<std::vector<u32>, kLanes> calls_;  // return addresses
    std::vector<u8> file_;
    std::vector<u32> predicate_file_;
    std::vector<u8> local_file_;
};
}  // namespace ptxemu
