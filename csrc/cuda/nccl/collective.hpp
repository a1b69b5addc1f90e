// Collectives as works: what each rank calls, checked before NCCL is.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cuda/handles.hpp"
#include "cuda/nccl/communicators.hpp"
#include "cuda/task.hpp"

namespace gm {

class Collective : public Task {
  public:
    enum class Kind {
        all_reduce,
        all_gather,
        reduce_scatter,
        broadcast,
        reduce,
        alltoall,
        sendrecv,
        scatter,
        gather,
        barrier
    };
    struct Spec {
        std::string kind, dtype;
        std::int64_t count;  // NCCL's: all that a rank holds, or one rank's share
        std::vector<std::uintptr_t> send, receive;
        std::string op = "sum";
        int root = 0;
    };

    // Addresses are one for each local rank. Throws std::invalid_argument for what cannot be.
    Collective(std::shared_ptr<Communicators> communicators, const Spec& spec);

    void run(std::int64_t n) override;  // enqueues n times, a group each
    void add() const;                   // one call of every local rank, inside a group
    const char* name() const;           // "ncclAllReduce"
    const std::string& what() const { return what_; }
    bool in_place() const { return in_place_; }
    const std::shared_ptr<Communicators>& communicators() const { return communicators_; }

  private:
    struct Place {
        const char* send;
        char* receive;
    };
    std::size_t send_bytes(int rank) const;
    std::size_t receive_bytes(int rank) const;
    void place(const std::vector<std::uintptr_t>& send, const std::vector<std::uintptr_t>& receive);
    bool check_overlap(const Place& place, int rank) const;
    void call(const Communicators::Rank& rank, const Place& place) const;
    void send_and_receive(const Communicators::Rank& rank, const Place& place) const;
    void exchange(const Communicators::Rank& rank, const Place& place, int to, int from) const;

    std::shared_ptr<Communicators> communicators_;
    Kind kind_;
    nccl::DataType type_;
    nccl::Op op_;
    std::size_t count_, block_;  // elements, and their bytes
    int root_;
    std::string what_;
    std::vector<Buffer> own_;  // of a barrier
    std::vector<Place> places_;
    bool in_place_ = false;
};

// Several collectives of the same communicators as one group.
class CollectiveGroup : public Task {
  public:
    explicit CollectiveGroup(std::vector<const Collective*> collectives);  // which must outlive it
    void run(std::int64_t n) override;
    const std::shared_ptr<Communicators>& communicators() const { return collectives_[0]->communicators(); }

  private:
    std::vector<const Collective*> collectives_;
};

}  // namespace gm
