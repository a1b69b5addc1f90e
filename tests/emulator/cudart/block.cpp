#include "block.hpp"

#include <time.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>

#include "bind.hpp"
#include "fault.hpp"

namespace ptxemu {
namespace {
constexpr long kTurn = 1 << 16;       // instructions of a warp before the next of its block has its turn
constexpr long kShortTurn = 1 << 11;  // where blocks wait for each other

double seconds() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::string place_of(const Warp& warp) {
    const Program& program = *warp.block->launch->program;
    const Block& block = *warp.block;
    const auto at = static_cast<std::size_t>(warp.current - program.code.data());
    std::string text = " at block (" + std::to_string(block.id[0]) + ", " + std::to_string(block.id[1]) + ", " +
                       std::to_string(block.id[2]) + ")";
    if (warp.current != nullptr && at < program.texts.size()) text += ", " + program.texts[at];
    return text + ", kernel " + program.kernel;
}
}  // namespace

void Block::start(const Launch& of, Worker* by, u64 at) {
    launch = &of;
    worker = by;
    number = at;
    id = {static_cast<u32>(at % of.grid[0]), static_cast<u32>(at / of.grid[0] % of.grid[1]),
          static_cast<u32>(at / of.grid[0] / of.grid[1])};
    shared_bytes = of.program->shared_bytes + of.dynamic_shared;
    shared_store.resize(shared_bytes + 256);
    shared = reinterpret_cast<u8*>(round_up(reinterpret_cast<u64>(shared_store.data()), 128));
    std::memset(shared, 0xff, shared_bytes);
    barriers = {};
    const u64 threads = of.threads_of_block();
    const u64 count = (threads + kLanes - 1) / kLanes;
    while (warps.size() < count) warps.push_back(std::make_unique<Warp>());
    for (u32 i = 0; i < count; ++i)
        warps[i]->start(this, i, static_cast<u32>(std::min<u64>(kLanes, threads - u64{i} * kLanes)));
}

// Lets the warps go on whose barriers are full; whether there were any.
bool Block::release() {
    std::array<u32, 16> arrived{};
    u32 live = 0;
    for (const auto& warp : warps) {
        live += static_cast<u32>(__builtin_popcount(warp->live));
        for (u32 rest = warp->at_barrier; rest != 0; rest &= rest - 1)
            ++arrived[warp->barrier_of[static_cast<std::size_t>(__builtin_ctz(rest))]];
    }
    bool any = false;
    for (std::size_t number = 0; number < barriers.size(); ++number) {
        Barrier& barrier = barriers[number];
        const u32 wanted = barrier.expected != 0 ? barrier.expected : live;
        if (arrived[number] == 0 || arrived[number] + barrier.arrived < wanted) continue;
        any = true;
        for (const auto& warp : warps) {
            for (u32 rest = warp->at_barrier; rest != 0; rest &= rest - 1) {
                const auto lane = static_cast<std::size_t>(__builtin_ctz(rest));
                if (warp->barrier_of[lane] != number) continue;
                const Instruction& instruction = launch->program->code[warp->pc[lane] - 1];
                if (instruction.mode != 0) give_barrier_result(*warp, instruction, 1u << lane, barrier);
                warp->at_barrier &= ~(1u << lane);
            }
        }
        barrier = Barrier{};
    }
    return any;
}

bool Block::turn(long budget) {
    bool moved = false, left = false;
    for (const auto& warp : warps) {
        if (warp->done()) continue;
        try {
            warp->run(budget);
        } catch (const Fault& fault) {
            throw Fault(fault.code(), fault.what() + place_of(*warp));
        }
        moved = moved || warp->budget < budget;
        left = left || !warp->done();
    }
    if (!left) return false;
    if (!release() && !moved)
        throw Fault(kLaunchFailure, "threads wait at a barrier that the others never reach" + place_of(*warps.front()));
    return true;
}

namespace {
class Grid {
  public:
    explicit Grid(const Launch& launch)
        : launch_(launch), deadline_(launch.timeout_s > 0 ? seconds() + launch.timeout_s : 0) {
        total_.executed.resize(launch.program->code.size());
    }

    Tally run() {
        const u64 blocks = launch_.blocks();
        const u64 hosts =
            launch_.cooperative ? 1 : std::min<u64>(blocks, std::max(1u, std::thread::hardware_concurrency()));
        std::vector<std::thread> others;
        for (u64 i = 1; i < hosts; ++i) others.emplace_back([this] { work(); });
        work();
        for (std::thread& other : others) other.join();
        if (error_ != nullptr) std::rethrow_exception(error_);
        return total_;
    }

  private:
    void work() {
        Worker worker(launch_);
        try {
            launch_.cooperative ? run_together(&worker) : run_apart(&worker);
        } catch (...) {
            const std::lock_guard<std::mutex> lock(mutex_);
            if (error_ == nullptr) error_ = std::current_exception();
            stop_ = true;
        }
        const std::lock_guard<std::mutex> lock(mutex_);
        for (std::size_t i = 0; i < total_.executed.size(); ++i) total_.executed[i] += worker.tally.executed[i];
        for (std::size_t i = 0; i < kSpaces; ++i) {
            total_.loaded[i] += worker.tally.loaded[i];
            total_.stored[i] += worker.tally.stored[i];
        }
    }

    void check_time() const {
        if (deadline_ != 0 && seconds() > deadline_)
            throw Fault(kLaunchTimeout, "the launch timed out, kernel " + launch_.program->kernel);
    }

    void run_apart(Worker* worker) {
        Block block;
        for (u64 at = next_++; at < launch_.blocks() && !stop_; at = next_++) {
            block.start(launch_, worker, at);
            while (block.turn(kTurn) && !stop_) check_time();
        }
    }

    void run_together(Worker* worker) {
        std::vector<std::unique_ptr<Block>> blocks;
        for (u64 at = 0; at < launch_.blocks(); ++at) {
            blocks.push_back(std::make_unique<Block>());
            blocks.back()->start(launch_, worker, at);
        }
        for (bool left = true; left; check_time()) {
            left = false;
            for (const auto& block : blocks) left = block->turn(kShortTurn) || left;
        }
    }

    const Launch& launch_;
    const double deadline_;
    std::atomic<u64> next_{0};
    std::atomic<bool> stop_{false};
    std::mutex mutex_;
    std::exception_ptr error_;
    Tally total_;
};
}  // namespace

Tally run_launch(const Launch& launch) { return Grid(launch).run(); }
}  // namespace ptxemu
