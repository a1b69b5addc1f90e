#include "memory.hpp"

#include <sys/mman.h>

#include <cstring>
#include <mutex>
#include <vector>

namespace ptxemu {
namespace {
constexpr u64 kPage = 4096;
constexpr u64 kAlignment = 256;  // what cudaMalloc promises

bool counted(MemoryKind kind) { return kind == MemoryKind::device || kind == MemoryKind::managed; }
}  // namespace

Memory& Memory::instance() {
    static Memory* memory = new Memory;  // never destroyed: streams may still run at exit
    return *memory;
}

void* Memory::allocate(u64 bytes, int device, MemoryKind kind, u64 limit) {
    const u64 kept = round_up(bytes == 0 ? 1 : bytes, kAlignment);
    const std::unique_lock<std::shared_mutex> lock(mutex_);
    if (counted(kind) && used_[device] + kept > limit) return nullptr;
    const u64 inner = round_up(kept, kPage), whole = inner + 2 * kPage;
    void* mapping = mmap(nullptr, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) return nullptr;
    u8* const pages = static_cast<u8*>(mapping) + kPage;
    if (mprotect(pages, inner, PROT_READ | PROT_WRITE) != 0) {
        munmap(mapping, whole);
        return nullptr;
    }
    u8* const begin = pages + inner - kept;  // ends where the forbidden page begins
    std::memset(begin, 0xff, kept);          // NaN in every float format
    const u64 address = reinterpret_cast<u64>(begin);
    table_[address] = Allocation{address, address + bytes, device, kind, mapping, whole, false};
    if (counted(kind)) used_[device] += kept;
    return begin;
}

void Memory::enter(void* begin, u64 bytes, int device, MemoryKind kind) {
    const std::unique_lock<std::shared_mutex> lock(mutex_);
    const u64 address = reinterpret_cast<u64>(begin);
    table_[address] = Allocation{address, address + bytes, device, kind, nullptr, 0, false};
}

bool Memory::release(void* begin) {
    const std::unique_lock<std::shared_mutex> lock(mutex_);
    const auto at = table_.find(reinterpret_cast<u64>(begin));
    if (at == table_.end()) return false;
    const Allocation gone = at->second;
    table_.erase(at);
    epoch_.fetch_add(1, std::memory_order_acq_rel);
    const u64 size = gone.end - gone.begin;
    if (counted(gone.kind)) used_[gone.device] -= round_up(size == 0 ? 1 : size, kAlignment);
    if (gone.mapping != nullptr) munmap(gone.mapping, gone.mapped_bytes);
    return true;
}

void Memory::release_all(int device) {
    std::vector<void*> gone;
    {
        const std::shared_lock<std::shared_mutex> lock(mutex_);
        for (const auto& [begin, allocation] : table_) {
            const bool ours = allocation.device == device && allocation.kind != MemoryKind::module;
            if (ours) gone.push_back(reinterpret_cast<void*>(begin));
        }
    }
    for (void* begin : gone) release(begin);
}

bool Memory::find(u64 address, Allocation* found) const {
    const std::shared_lock<std::shared_mutex> lock(mutex_);
    auto after = table_.upper_bound(address);
    if (after == table_.begin()) return false;
    --after;
    if (address >= after->second.end && address != after->first) return false;
    *found = after->second;
    return true;
}

u64 Memory::used(int device) const {
    const std::shared_lock<std::shared_mutex> lock(mutex_);
    const auto at = used_.find(device);
    return at == used_.end() ? 0 : at->second;
}

void Memory::allow_peer(int device, int peer, bool allowed) {
    const std::unique_lock<std::shared_mutex> lock(mutex_);
    peers_[{device, peer}] = allowed;
    epoch_.fetch_add(1, std::memory_order_acq_rel);
}

bool Memory::peer_allowed(int device, int peer) const {
    const std::shared_lock<std::shared_mutex> lock(mutex_);
    const auto at = peers_.find({device, peer});
    return at != peers_.end() && at->second;
}

bool Access::look_up(u64 low, u64 high) {
    const Memory& memory = Memory::instance();
    const u64 epoch = memory.epoch();
    Allocation found;
    if (!memory.find(low, &found) || high > found.end) return false;
    const bool own = found.kind == MemoryKind::device || found.kind == MemoryKind::module;
    if (own && found.device != device_ && !memory.peer_allowed(device_, found.device)) return false;
    begin_ = found.begin;
    end_ = found.end;
    epoch_ = epoch;
    return true;
}
}  // namespace ptxemu
