// One std::thread a CUDA thread, for TSan. A mutex and a condition variable would hide races: a thread that wakes late
// acquires what others did after the barrier. So a barrier is relaxed atomics and a futex, which TSan takes for no
// ordering, and one explicit edge a generation, on one of two objects in turn.
#pragma once
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <thread>

#include "engine.hpp"
#ifdef __SANITIZE_THREAD__
extern "C" void __tsan_acquire(void*);
extern "C" void __tsan_release(void*);
#else
inline void __tsan_acquire(void*) {}
inline void __tsan_release(void*) {}
#endif

namespace cusim {

class Barrier {
  public:
    void expect(unsigned threads) { state_.store(std::uint64_t{threads} << 32, std::memory_order_relaxed); }

    void wait() {
        const std::uint32_t generation = generation_.load(std::memory_order_relaxed);
        __tsan_release(&edge_[generation & 1]);
        asm volatile("" ::: "memory");
        if (full(state_.fetch_add(1, std::memory_order_relaxed) + 1)) {
            open();
        } else {
            while (generation_.load(std::memory_order_relaxed) == generation) {
                syscall(SYS_futex, &generation_, FUTEX_WAIT_PRIVATE, generation, nullptr, nullptr, 0);
            }
        }
        asm volatile("" ::: "memory");
        __tsan_acquire(&edge_[generation & 1]);
    }

    void leave() {  // a thread that has ended is no longer waited for
        __tsan_release(&edge_[generation_.load(std::memory_order_relaxed) & 1]);
        constexpr std::uint64_t one = std::uint64_t{1} << 32;
        if (full(state_.fetch_sub(one, std::memory_order_relaxed) - one)) open();
    }

  private:
    static std::uint64_t arrived(std::uint64_t state) { return state & 0xffffffffU; }
    static bool full(std::uint64_t state) { return (state >> 32) != 0 && (state >> 32) == arrived(state); }
    void open() {
        state_.fetch_sub(arrived(state_.load(std::memory_order_relaxed)), std::memory_order_relaxed);
        generation_.fetch_add(1, std::memory_order_relaxed);
        syscall(SYS_futex, &generation_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
    }

    std::atomic<std::uint64_t> state_{0};  // expected << 32 | arrived
    std::atomic<std::uint32_t> generation_{0};
    char edge_[2] = {};
};

// A warp's barriers: one for all its lanes and one for each other mask that is used.
class WarpBarriers {
  public:
    void begin(unsigned lanes) { whole_.expect(lanes); }
    void end_of_lane() { whole_.leave(); }
    void wait(unsigned mask) {
        if (mask == ~0U) return whole_.wait();
        if (((mask >> lane()) & 1U) == 0) fail("a warp barrier whose mask leaves out the caller");
        for (Part& part : parts_) {
            unsigned seen = 0;
            if (part.mask.compare_exchange_strong(seen, mask, std::memory_order_relaxed) || seen == mask) {
                return part.barrier(mask).wait();
            }
        }
        fail("more different masks in one launch than the shim has barriers for");
    }

  private:
    struct Part {
        std::atomic<unsigned> mask{0};
        std::atomic<unsigned> ready{0};
        Barrier own;
        Barrier& barrier(unsigned lanes) {  // the first to come sets the number, the others wait for that
            unsigned fresh = 0;
            if (ready.compare_exchange_strong(fresh, 1, std::memory_order_relaxed)) {
                own.expect(static_cast<unsigned>(__builtin_popcount(lanes)));
                ready.store(2, std::memory_order_relaxed);
            }
            while (ready.load(std::memory_order_relaxed) != 2) std::this_thread::yield();
            return own;
        }
    };
    Barrier whole_;
    Part parts_[8];
};

inline Barrier* block_barrier = nullptr;
inline WarpBarriers* warp_barriers = nullptr;

inline void block_sync(int) { block_barrier->wait(); }
inline void warp_sync(unsigned mask) { warp_barriers[warp()].wait(mask); }

// The threads of a launch live through all its blocks: two more barriers, which the launching thread takes part in,
// hold a block's beginning and its end.
class Engine {
  public:
    explicit Engine(unsigned threads) : threads_(threads), warps_(new WarpBarriers[(threads + kWarp - 1) / kWarp]) {
        begin_.expect(threads + 1);
        end_.expect(threads + 1);
    }
    ~Engine() {
        body_ = nullptr;
        begin_.wait();
        for (std::thread& thread : running_) thread.join();
    }
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    Thread& thread(unsigned i) { return threads_[i]; }

    void run_block(const Body& body) {
        const unsigned count = static_cast<unsigned>(threads_.size());
        body_ = &body;
        whole_.expect(count);
        for (unsigned w = 0; w * kWarp < count; ++w) warps_[w].begin(lanes_of(w));
        block_barrier = &whole_;
        warp_barriers = warps_.get();
        if (running_.empty()) {
            for (Thread& thread : threads_) running_.emplace_back([this, &thread] { live(thread); });
        }
        begin_.wait();
        end_.wait();
    }

  private:
    void live(Thread& thread) {
        current = &thread;
        for (begin_.wait(); body_ != nullptr; begin_.wait()) {
            (*body_)();
            warps_[warp()].end_of_lane();
            whole_.leave();
            end_.wait();
        }
    }

    std::vector<Thread> threads_;
    const std::unique_ptr<WarpBarriers[]> warps_;
    Barrier whole_, begin_, end_;
    const Body* body_ = nullptr;
    std::vector<std::thread> running_;
};

}  // namespace cusim
