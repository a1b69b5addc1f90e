// A gate holds the measuring stream while the host enqueues what is to be timed, so that no launch cost stands between
// the two events.
#pragma once
#include <cstdint>

#include "cuda/handles.hpp"

namespace gm {

class Gate {
  public:
    Gate(int device, cudaStream_t stream);
    ~Gate() { open(ticket_); }
    Gate(const Gate&) = delete;
    Gate& operator=(const Gate&) = delete;

    // A ticket for the next closing. Whoever holds it opens the gate, whatever happens in between.
    std::uint32_t next() { return ++ticket_; }
    // Enqueues the kernel that waits for the ticket, for timeout_s at most, and then for `delay` cycles.
    void close(std::uint32_t ticket, double timeout_s, std::uint64_t delay);
    void open(std::uint32_t ticket) noexcept;
    // Whether the gate of that ticket let go by itself. Asked after the stream has passed it.
    bool expired(std::uint32_t ticket) const;

  private:
    struct Words;
    cudaStream_t stream_;
    Buffer memory_;  // mapped: host and device share it
    Words* words_;
    void *opened_ = nullptr, *expired_ = nullptr;  // the device's addresses of the words
    const void* kernel_;
    std::uint32_t ticket_ = 0;
};

// Opens a gate when it goes out of scope.
class Opening {
  public:
    Opening(Gate& gate, std::uint32_t ticket) : gate_(&gate), ticket_(ticket) {}
    Opening(Opening&& other) noexcept : gate_(other.gate_), ticket_(other.ticket_) { other.gate_ = nullptr; }
    Opening& operator=(Opening&&) = delete;
    ~Opening() {
        if (gate_ != nullptr) gate_->open(ticket_);
    }

  private:
    Gate* gate_;
    std::uint32_t ticket_;
};

}  // namespace gm
