#include "cuda/hung.hpp"

#include <atomic>

namespace gm {
namespace {

constexpr int kMost = 64;  // devices that a process can see, and more
std::atomic<bool> hung[kMost];

}  // namespace

void set_hung(int device, bool is) {
    if (device >= 0 && device < kMost) hung[device].store(is, std::memory_order_relaxed);
}

bool is_hung(int device) { return device >= 0 && device < kMost && hung[device].load(std::memory_order_relaxed); }

}  // namespace gm
