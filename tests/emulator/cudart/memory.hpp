// Device memory: every allocation stands alone between pages that nobody may touch, in one table for all devices.
#pragma once
#include <atomic>
#include <map>
#include <shared_mutex>

#include "types.hpp"

namespace ptxemu {
enum class MemoryKind : u8 { device, pinned, managed, registered, module };

struct Allocation {
    u64 begin = 0;
    u64 end = 0;  // of the bytes asked for
    int device = 0;
    MemoryKind kind = MemoryKind::device;
    void* mapping = nullptr;
    u64 mapped_bytes = 0;
    bool asynchronous = false;  // from cudaMallocAsync
};

class Memory {
  public:
    static Memory& instance();
    // nullptr where the system or the device (`limit` bytes in all) has no more. New memory holds 0xff bytes.
    void* allocate(u64 bytes, int device, MemoryKind kind, u64 limit);
    void enter(void* begin, u64 bytes, int device, MemoryKind kind);  // memory that somebody else owns
    bool release(void* begin);                                        // false where no allocation begins there
    void release_all(int device);
    bool find(u64 address, Allocation* found) const;  // the allocation that holds the address
    u64 used(int device) const;
    u64 epoch() const { return epoch_.load(std::memory_order_acquire); }
    void allow_peer(int device, int peer, bool allowed);
    bool peer_allowed(int device, int peer) const;

  private:
    mutable std::shared_mutex mutex_;
    std::map<u64, Allocation> table_;  // by begin
    std::map<int, u64> used_;
    std::map<std::pair<int, int>, bool> peers_;
    std::atomic<u64> epoch_{1};  // changes when an address may have become invalid
};

// One worker's sight of the memory that its device may access; remembers the last allocation.
class Access {
  public:
    explicit Access(int device) : device_(device) {}
    // Whether [low, high) lies in one allocation that the device may access.
    bool allowed(u64 low, u64 high) {
        if (low >= begin_ && high <= end_ && Memory::instance().epoch() == epoch_) return true;
        return look_up(low, high);
    }

  private:
    bool look_up(u64 low, u64 high);
    int device_;
    u64 begin_ = 1;
    u64 end_ = 0;
    u64 epoch_ = 0;
};
}  // namespace ptxemu
