// A block (CTA) of a launch, its shared memory and barriers; a worker is the host thread that runs blocks.
#pragma once
#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "memory.hpp"
#include "program.hpp"
#include "warp.hpp"

namespace ptxemu {
struct Launch {
    std::shared_ptr<const Program> program;
    std::array<u32, 3> grid{1, 1, 1};
    std::array<u32, 3> block{1, 1, 1};
    u64 dynamic_shared = 0;
    std::vector<u8> parameters;
    bool cooperative = false;
    int device = 0;
    u32 multiprocessors = 1;
    u64 number = 0;
    u64 grid_workspace = 0;
    double timeout_s = 0;  // 0: none
    u64 threads_of_block() const { return u64{block[0]} * block[1] * block[2]; }
    u64 blocks() const { return u64{grid[0]} * grid[1] * grid[2]; }
};

// What a worker counts: executions of each instruction, and bytes that only the execution knows.
struct Tally {
    std::vector<u64> executed;  // beside Program::code
    std::array<u64, kSpaces> loaded{};
    std::array<u64, kSpaces> stored{};
};

struct Worker {
    explicit Worker(const Launch& launch) : access(launch.device) {
        tally.executed.resize(launch.program->code.size());
    }
    Tally tally;
    Access access;
};

struct Barrier {
    u32 arrived = 0;   // by bar.arrive, which does not wait
    u32 expected = 0;  // 0: all threads of the block
    u32 votes = 0;     // threads whose predicate was true (bar.red)
    u32 voters = 0;
};

struct Block {
    const Launch* launch = nullptr;
    Worker* worker = nullptr;
    u64 number = 0;
    std::array<u32, 3> id{};
    std::vector<u8> shared_store;
    u8* shared = nullptr;
    u64 shared_bytes = 0;
    std::vector<std::unique_ptr<Warp>> warps;
    std::array<Barrier, 16> barriers{};

    void start(const Launch& of, Worker* by, u64 at);
    // Gives each warp a turn; false when all are done. Throws Fault.
    bool turn(long budget);

  private:
    bool release();
};

// Runs all blocks of a launch and gives the counts of all workers together. Throws Fault.
Tally run_launch(const Launch& launch);
}  // namespace ptxemu
