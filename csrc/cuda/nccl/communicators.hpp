// The communicators of this process, and the promise that nothing of theirs waits for ever: each step has a deadline,
// and what misses it is aborted.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "cuda/nccl/api.hpp"

namespace gm {

class Watchdog;

struct NcclOptions {
    double timeout_s = 60.0;
    bool blocking = false;  // NCCL before 2.14 knows no other mode
};

class Communicators {
  public:
    struct Rank {
        int rank, device;
        cudaStream_t stream;  // the device's measuring stream
        nccl::Comm comm;
    };

    // Some ranks of a clique of `size`, whose others are made elsewhere at the same time. Throws std::invalid_argument
    // for what cannot be, NcclFailure where NCCL refuses or the others do not come in time.
    Communicators(std::shared_ptr<const NcclApi> api, int size, const nccl::UniqueId& id, const std::vector<int>& ranks,
                  const std::vector<int>& devices, const NcclOptions& options);
    // All ranks of a clique, in blocking mode by ncclCommInitAll.
    Communicators(std::shared_ptr<const NcclApi> api, const std::vector<int>& devices, const NcclOptions& options);
    ~Communicators();  // aborts what was not closed
    Communicators(const Communicators&) = delete;
    Communicators& operator=(const Communicators&) = delete;

    const NcclApi& api() const { return *api_; }
    int size() const { return size_; }
    const std::vector<Rank>& ranks() const { return ranks_; }
    bool blocking() const { return blocking_; }
    bool aborted() const { return aborted_.load(); }

    // Calls `body` inside a group; returns when all of it stands in the streams. Throws NcclFailure, having aborted,
    // where NCCL refuses it or does not get there in time.
    template <class Body>
    void enqueue(const char* call, Body&& body) {
        try {
            start_group(call);
            try {
                body();
            } catch (...) {
                (void)api_->group_end();  // or the next group of this thread would be inside this one
                leave();
                throw;
            }
            end_group(call);
        } catch (...) {
            abort();
            if (expired_.exchange(false)) time_out(call);
            throw;
        }
    }
    void check(nccl::Result result, const char* call, const Rank& rank) const {
        api_->check(result, call, rank.rank, rank.comm);
    }

    void must_live(const char* call) const;  // throws NcclFailure where they were aborted or closed
    void poll();                             // throws NcclFailure, having aborted, where one met an asynchronous error
    void wait();  // until all streams are done; throws NcclFailure, having aborted, when that takes too long
    bool abort() noexcept;
    void close();
    [[noreturn]] void time_out(const char* call);  // aborts and throws

    // Graphs with NCCL's kernels in them: NCCL does not end before they are gone, so they go when it ends.
    void keep(cudaGraphExec_t graph);
    void drop(cudaGraphExec_t graph) noexcept;

    std::atomic<double> timeout_s;

  private:
    void place(const std::vector<int>& ranks, const std::vector<int>& devices);
    void make(const nccl::UniqueId& id);
    void make_blocking(const nccl::UniqueId* id);
    void enlist();
    void start_group(const char* call);
    void end_group(const char* call);
    void leave();
    void settle(const char* call);
    bool in_progress(const char* call);
    void look_after_streams() noexcept;
    void drop_graphs() noexcept;
    template <class Step>
    bool each_by_itself(double limit_s, Step step) const noexcept;

    std::shared_ptr<const NcclApi> api_;
    int size_;
    bool blocking_;
    std::vector<Rank> ranks_;
    std::timed_mutex calls_;  // around NCCL's functions, but for an abort that comes while one of them blocks
    std::mutex ending_;       // one abort at a time
    std::atomic<bool> aborted_{false}, closed_{false}, expired_{false};
    bool ended_ = true;  // NCCL came back from the abort
    std::mutex graphs_guard_;
    std::set<cudaGraphExec_t> graphs_;
    std::unique_ptr<Watchdog> watchdog_;  // in blocking mode
};

// Polls all that this process has: for whoever waits for a device without knowing what runs there.
void poll_communicators();

}  // namespace gm
