#include "pool.hpp"

#include <algorithm>

#include "memory.hpp"

namespace ptxemu {
void* Pool::take(u64 bytes, const std::shared_ptr<Stream>& stream) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto fits = [&](const Idle& idle) { return idle.bytes == bytes && (idle.reached || idle.stream == stream); };
    const auto found = std::find_if(idle_.begin(), idle_.end(), fits);
    void* pointer = nullptr;
    if (found != idle_.end()) {
        pointer = found->pointer;
        idle_.erase(found);
    } else {
        pointer = Memory::instance().allocate(bytes, device_, MemoryKind::device, device_facts().memory_bytes);
        if (pointer == nullptr) return nullptr;
        reserved_ += bytes;
    }
    live_[pointer] = bytes;
    used_ += bytes;
    used_high_ = std::max(used_high_, used_);
    reserved_high_ = std::max(reserved_high_, reserved_);
    return pointer;
}

bool Pool::give_back(void* pointer, const std::shared_ptr<Stream>& stream) {
    std::list<Idle>::iterator idle;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto found = live_.find(pointer);
        if (found == live_.end()) return false;
        used_ -= found->second;
        idle_.push_back(Idle{pointer, found->second, stream, false});
        live_.erase(found);
    }
    stream->submit([this, pointer] {
        const std::lock_guard<std::mutex> lock(mutex_);
        for (Idle& one : idle_) one.reached = one.reached || one.pointer == pointer;
        release_reached(threshold_);
    });
    return true;
}

// Gives memory back to the device until no more than `keep` bytes are reserved, or only what is in use.
void Pool::release_reached(u64 keep) {
    for (auto at = idle_.begin(); at != idle_.end() && reserved_ > keep;) {
        if (!at->reached) {
            ++at;
            continue;
        }
        Memory::instance().release(at->pointer);
        reserved_ -= at->bytes;
        at = idle_.erase(at);
    }
}

void Pool::trim(u64 keep) {
    const std::lock_guard<std::mutex> lock(mutex_);
    release_reached(keep);
}

cudaError_t Pool::set(cudaMemPoolAttr which, const void* value) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (which == cudaMemPoolAttrReleaseThreshold) threshold_ = *static_cast<const u64*>(value);
    if (which == cudaMemPoolAttrUsedMemHigh) used_high_ = used_;
    if (which == cudaMemPoolAttrReservedMemHigh) reserved_high_ = reserved_;
    return cudaSuccess;
}

cudaError_t Pool::get(cudaMemPoolAttr which, void* value) {
    const std::lock_guard<std::mutex> lock(mutex_);
    switch (which) {
        case cudaMemPoolAttrReleaseThreshold:
            *static_cast<u64*>(value) = threshold_;
            break;
        case cudaMemPoolAttrReservedMemCurrent:
            *static_cast<u64*>(value) = reserved_;
            break;
        case cudaMemPoolAttrReservedMemHigh:
            *static_cast<u64*>(value) = reserved_high_;
            break;
        case cudaMemPoolAttrUsedMemCurrent:
            *static_cast<u64*>(value) = used_;
            break;
        case cudaMemPoolAttrUsedMemHigh:
            *static_cast<u64*>(value) = used_high_;
            break;
        default:  // the ways to reuse memory: all on
            *static_cast<int*>(value) = 1;
    }
    return cudaSuccess;
}
}  // namespace ptxemu
