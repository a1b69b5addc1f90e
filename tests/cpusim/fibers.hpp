// One ucontext fiber a CUDA thread. A fiber runs until it waits at a barrier; the scheduler opens a barrier when all
// who must come have come, and ends the program where they never can: threads of a warp at different barriers.
#pragma once
#include <sys/mman.h>
#include <ucontext.h>

#include "engine.hpp"
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

namespace cusim {

enum class Wait { none, warp, block, done };

struct Fiber {
    Thread thread;
    ucontext_t context;
    void* fake_stack = nullptr;  // ASan's
    Wait wait = Wait::none;
    unsigned mask = 0;  // lanes of a warp barrier
    int line = 0;       // where the block's barrier stands
};

// Stacks with a page without access below each, kept from launch to launch.
class Stacks {
  public:
    static constexpr std::size_t kBytes = 256 << 10, kGuard = 4096;
    void grow(std::size_t count) {
        while (stacks_.size() < count) {
            void* p = mmap(nullptr, kGuard + kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (p == MAP_FAILED || mprotect(p, kGuard, PROT_NONE) != 0) fail("no memory for a stack");
            stacks_.push_back(static_cast<char*>(p) + kGuard);
        }
    }
    char* at(std::size_t i) const { return stacks_[i]; }

  private:
    std::vector<char*> stacks_;
};

inline Stacks stacks;
inline ucontext_t scheduler;
inline Fiber* running = nullptr;
inline const Body* running_body = nullptr;

// ASan must be told which stack is in use.
#ifdef __SANITIZE_ADDRESS__
inline const void* scheduler_stack = nullptr;
inline std::size_t scheduler_stack_bytes = 0;
inline void before_switch(void** keep, const void* stack, std::size_t bytes) {
    __sanitizer_start_switch_fiber(keep, stack, bytes);
}
inline void in_scheduler(void* kept) { __sanitizer_finish_switch_fiber(kept, nullptr, nullptr); }
inline void in_fiber(void* kept) { __sanitizer_finish_switch_fiber(kept, &scheduler_stack, &scheduler_stack_bytes); }
#else
inline const void* const scheduler_stack = nullptr;
inline const std::size_t scheduler_stack_bytes = 0;
inline void before_switch(void**, const void*, std::size_t) {}
inline void in_scheduler(void*) {}
inline void in_fiber(void*) {}
#endif

inline void resume(Fiber& fiber, const char* stack) {
    running = &fiber;
    current = &fiber.thread;
    void* kept = nullptr;
    before_switch(&kept, stack, Stacks::kBytes);
    swapcontext(&scheduler, &fiber.context);
    in_scheduler(kept);
    current = nullptr;
}

inline void suspend(Wait wait) {
    Fiber& me = *running;
    me.wait = wait;
    before_switch(wait == Wait::done ? nullptr : &me.fake_stack, scheduler_stack, scheduler_stack_bytes);
    swapcontext(&me.context, &scheduler);
    in_fiber(me.fake_stack);
}

inline void block_sync(int line) {
    running->line = line;
    suspend(Wait::block);
}
inline void warp_sync(unsigned mask) {
    if (((mask >> lane()) & 1U) == 0) fail("a warp barrier whose mask leaves out the caller");
    running->mask = mask;
    suspend(Wait::warp);
}

inline void fiber_entry() {
    in_fiber(nullptr);
    (*running_body)();
    suspend(Wait::done);
}

inline void prepare(Fiber& fiber, char* stack) {
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = stack;
    fiber.context.uc_stack.ss_size = Stacks::kBytes;
    fiber.context.uc_link = nullptr;
    fiber.wait = Wait::none;
    fiber.fake_stack = nullptr;
    makecontext(&fiber.context, fiber_entry, 0);
}

// Opens the warp barriers at which all live lanes of the mask wait; returns whether any opened.
inline bool open_warp_barriers(Fiber* lanes, unsigned count) {
    bool opened = false;
    for (unsigned i = 0; i < count; ++i) {
        if (lanes[i].wait != Wait::warp) continue;
        const unsigned mask = lanes[i].mask;
        bool all = true;
        for (unsigned j = 0; j < count; ++j) {
            const bool expected = ((mask >> j) & 1U) != 0 && lanes[j].wait != Wait::done;
            all = all && (!expected || (lanes[j].wait == Wait::warp && lanes[j].mask == mask));
        }
        for (unsigned j = 0; all && j < count; ++j) {
            if (((mask >> j) & 1U) != 0 && lanes[j].wait == Wait::warp) lanes[j].wait = Wait::none;
        }
        opened = opened || all;
    }
    return opened;
}

// Runs a warp until all of it waits at the block's barrier or has ended.
inline void run_warp(std::vector<Fiber>& fibers, unsigned first, unsigned count) {
    do {
        for (unsigned i = first; i < first + count; ++i) {
            if (fibers[i].wait == Wait::none) resume(fibers[i], stacks.at(i));
        }
    } while (open_warp_barriers(&fibers[first], count));
    for (unsigned i = first; i < first + count; ++i) {
        current = &fibers[i].thread;
        if (fibers[i].wait == Wait::warp) fail("divergent barrier: a warp waits for lanes that wait elsewhere");
    }
    current = nullptr;
}

// All live threads must wait at the same __syncthreads. Returns whether any is alive.
inline bool open_block_barrier(std::vector<Fiber>& fibers) {
    const Fiber* other = nullptr;
    for (Fiber& fiber : fibers) {
        if (fiber.wait == Wait::done) continue;
        current = &fiber.thread;
        if (other != nullptr && other->line != fiber.line) {
            fail("divergent barrier: threads of a block wait at different lines");
        }
        other = &fiber;
        fiber.wait = Wait::none;
    }
    current = nullptr;
    return other != nullptr;
}

class Engine {
  public:
    explicit Engine(unsigned threads) : fibers_(threads) { stacks.grow(threads); }
    Thread& thread(unsigned i) { return fibers_[i].thread; }
    void run_block(const Body& body) {
        running_body = &body;
        for (unsigned i = 0; i < fibers_.size(); ++i) prepare(fibers_[i], stacks.at(i));
        do {
            for (unsigned w = 0; w * kWarp < fibers_.size(); ++w) run_warp(fibers_, w * kWarp, lanes_of(w));
        } while (open_block_barrier(fibers_));
    }

  private:
    std::vector<Fiber> fibers_;
};

}  // namespace cusim
