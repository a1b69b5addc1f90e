// A communicator: one rank's seat in the region, what became of it, and what runs for it now.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "region.hpp"

namespace ncclemu {
struct Comm : std::enable_shared_from_this<Comm> {
    int rank = 0, size = 0, device = 0;
    bool blocking = true;
    std::string file;
    Region* region = nullptr;
    std::atomic<int> state{kInProgress};  // ncclCommGetAsyncError's
    std::atomic<bool> aborted{false};
    std::atomic<int> busy{0};  // operations and threads at work for it
    std::atomic<u64> operations{0};

    ~Comm();
    Result come();  // to the rendezvous; returns when all are there
    Result fail(Result code, const std::string& why);
    bool peer_is_gone(int peer);  // as far as anyone would notice
    bool stall();                 // until the abort; false, for "not done"
    void leave(State how);
    bool others_at_work() const { return busy.load() > 0; }
};

std::string last_error();
void set_last_error(const std::string& why);

struct Busy {  // while it lives the communicator has something to do
    explicit Busy(std::shared_ptr<Comm> comm) : comm_(std::move(comm)) { ++comm_->busy; }
    Busy(Busy&& other) noexcept = default;
    Busy(const Busy&) = delete;
    ~Busy() {
        if (comm_) --comm_->busy;
    }
    std::shared_ptr<Comm> comm_;
};
}  // namespace ncclemu
