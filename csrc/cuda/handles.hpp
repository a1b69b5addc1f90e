// Move-only owners of what CUDA hands out, and the device that a thread works on.
#pragma once
#include <cstddef>
#include <string>
#include <utility>

#include "cuda/check.hpp"

namespace gm {

// Makes a device this thread's current one and puts the caller's back. A thread that has none yet counts as one of
// device 0, but going "back" there would make a context on it (cudaSetDevice does since CUDA 12.0), of half a gigabyte
// and perhaps on a GPU that belongs to someone else: such a thread stays on `device`.
class DeviceScope {
  public:
    explicit DeviceScope(int device);
    ~DeviceScope() {
        if (back_) GM_CUDA_NOEXCEPT(cudaSetDevice(before_));
    }
    DeviceScope(const DeviceScope&) = delete;
    DeviceScope& operator=(const DeviceScope&) = delete;

  private:
    int before_ = 0;
    bool back_ = false;
};

// An event of the current device.
class Event {
  public:
    explicit Event(unsigned flags = cudaEventDefault) { GM_CUDA(cudaEventCreateWithFlags(&event_, flags)); }
    ~Event() {
        if (event_ != nullptr) GM_CUDA_NOEXCEPT(cudaEventDestroy(event_));
    }
    Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
    Event& operator=(Event&& other) noexcept {
        std::swap(event_, other.event_);
        return *this;
    }
    cudaEvent_t get() const { return event_; }

  private:
    cudaEvent_t event_ = nullptr;
};

// A stream of the current device that does not wait for the default stream.
class Stream {
  public:
    Stream() { GM_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
    ~Stream() {
        if (stream_ != nullptr) GM_CUDA_NOEXCEPT(cudaStreamDestroy(stream_));
    }
    Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
    Stream& operator=(Stream&& other) noexcept {
        std::swap(stream_, other.stream_);
        return *this;
    }
    cudaStream_t get() const { return stream_; }

  private:
    cudaStream_t stream_ = nullptr;
};

enum class Memory { device, pinned, managed, host };

Memory memory_of(const std::string& kind);  // "device", ...; throws std::invalid_argument

// Memory of one kind: on a device, or in the host (pinned: page-locked and mapped; host: pageable).
class Buffer {
  public:
    // Throws CudaFailure or std::bad_alloc where there is none. A size of 0 takes none.
    Buffer(int device, std::size_t size_bytes, Memory kind);
    ~Buffer() { release(); }
    Buffer(Buffer&& other) noexcept
        : address_(std::exchange(other.address_, nullptr)),
          size_bytes_(std::exchange(other.size_bytes_, 0)),
          device_(other.device_),
          kind_(other.kind_) {}
    Buffer& operator=(Buffer&& other) noexcept {
        std::swap(address_, other.address_);
        std::swap(size_bytes_, other.size_bytes_);
        std::swap(device_, other.device_);
        std::swap(kind_, other.kind_);
        return *this;
    }

    void* address() const { return address_; }
    std::size_t size_bytes() const { return size_bytes_; }
    int device() const { return device_; }
    Memory kind() const { return kind_; }
    void release() noexcept;

    // In order with the device's measuring stream; they return when done. Out of range: std::invalid_argument.
    void upload(const void* from, std::size_t size_bytes, std::size_t offset_bytes = 0);
    void download(void* to, std::size_t size_bytes, std::size_t offset_bytes = 0) const;
    void fill(unsigned char byte);

  private:
    void check_range(std::size_t size_bytes, std::size_t offset_bytes) const;

    void* address_ = nullptr;
    std::size_t size_bytes_ = 0;
    int device_ = 0;
    Memory kind_ = Memory::device;
};

}  // namespace gm
