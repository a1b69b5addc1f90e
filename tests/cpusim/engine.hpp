// What both engines of the CPU simulation share: the state of a launch and of a CUDA thread.
// fibers.hpp runs a block's threads as fibers (fast, for ASan and UBSan), threads.hpp as std::threads (for TSan).
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <vector>

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct uint3 {
    unsigned x, y, z;
};

namespace cusim {

constexpr unsigned kWarp = 32;
constexpr std::size_t kDynamicAlignment = 1024;

struct Shape {
    dim3 grid, block;
    std::size_t shared_bytes = 0;  // dynamic shared memory
};

struct Copy {  // a cp.async that is under way
    void* to;
    const void* from;
    unsigned bytes, from_bytes;
};

struct Thread {
    uint3 index{};
    unsigned rank = 0;  // in the block
    std::vector<Copy> open;
    std::vector<std::vector<Copy>> groups;  // committed, oldest first
};

struct WarpBuffer {  // what lanes hand to each other
    alignas(16) unsigned char lane[kWarp][128];
};

struct LaunchState {
    dim3 grid, block;
    uint3 block_index{};
    unsigned threads = 0;
    unsigned char* dynamic = nullptr;
    std::size_t dynamic_bytes = 0;
    std::vector<WarpBuffer> buffers;
};

inline LaunchState state;
#ifdef GPUMICRO_SIM_THREADS
inline thread_local Thread* current = nullptr;
#else
inline Thread* current = nullptr;
#endif

inline unsigned lane() { return current->rank % kWarp; }
inline unsigned warp() { return current->rank / kWarp; }
inline unsigned lanes_of(unsigned warp_number) {  // the last warp may have fewer than 32
    const unsigned left = state.threads - warp_number * kWarp;
    return left < kWarp ? left : kWarp;
}

[[noreturn]] inline void fail(const char* what) {
    const uint3 b = state.block_index;
    std::fprintf(stderr, "cusim: %s in block (%u,%u,%u)", what, b.x, b.y, b.z);
    if (current != nullptr) std::fprintf(stderr, " warp %u lane %u", warp(), lane());
    std::fprintf(stderr, "\n");
    std::abort();
}

// Clocks that always move on, so that a loop that waits for one ends: 32 a reading.
inline unsigned long long ticks() {
    static std::atomic<unsigned long long> now{0};
    return now.fetch_add(32, std::memory_order_relaxed);
}

inline unsigned dynamic_offset(const void* p) {
    const std::ptrdiff_t offset = static_cast<const unsigned char*>(p) - state.dynamic;
    if (offset < 0 || static_cast<std::size_t>(offset) > state.dynamic_bytes) {
        fail("an address that is not in the dynamic shared memory");
    }
    return static_cast<unsigned>(offset);
}
inline unsigned char* dynamic_at(unsigned offset, std::size_t bytes) {
    if (offset % bytes != 0) fail("a misaligned access to shared memory");
    if (offset + bytes > state.dynamic_bytes) fail("an access past the end of the dynamic shared memory");
    return state.dynamic + offset;
}

// Exactly as long as asked for, so that ASan sees an access past its end.
class DynamicShared {
  public:
    explicit DynamicShared(std::size_t bytes)
        : memory_(static_cast<unsigned char*>(::operator new(bytes, std::align_val_t{kDynamicAlignment}))),
          bytes_(bytes) {}
    ~DynamicShared() { ::operator delete(memory_, std::align_val_t{kDynamicAlignment}); }
    DynamicShared(const DynamicShared&) = delete;
    DynamicShared& operator=(const DynamicShared&) = delete;
    void poison() {  // NaN in every float format, -1 in every integer
        for (std::size_t i = 0; i < bytes_; ++i) memory_[i] = 0xff;
    }
    unsigned char* get() const { return memory_; }

  private:
    unsigned char* memory_;
    std::size_t bytes_;
};

using Body = std::function<void()>;

}  // namespace cusim
