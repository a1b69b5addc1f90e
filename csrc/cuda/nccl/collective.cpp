#include "cuda/nccl/collective.hpp"

#include <cuda.h>  // types only: libcuda is never linked

#include <stdexcept>

namespace gm {
namespace {

using Kind = Collective::Kind;

struct Known {
    const char* name;
    Kind kind;
    const char* function;
};
constexpr Known kKnown[] = {
    {"all_reduce", Kind::all_reduce, "ncclAllReduce"},
    {"all_gather", Kind::all_gather, "ncclAllGather"},
    {"reduce_scatter", Kind::reduce_scatter, "ncclReduceScatter"},
    {"broadcast", Kind::broadcast, "ncclBroadcast"},
    {"reduce", Kind::reduce, "ncclReduce"},
    {"alltoall", Kind::alltoall, "ncclSend/ncclRecv"},
    {"sendrecv", Kind::sendrecv, "ncclSend/ncclRecv"},
    {"scatter", Kind::scatter, "ncclSend/ncclRecv"},
    {"gather", Kind::gather, "ncclSend/ncclRecv"},
    {"barrier", Kind::barrier, "ncclAllReduce"},
};

Kind kind_of(const std::string& name) {
    std::string all;
    for (const Known& known : kKnown) {
        if (name == known.name) return known.kind;
        all += (all.empty() ? "" : ", ") + std::string(known.name);
    }
    throw std::invalid_argument("unknown collective '" + name + "': " + all);
}

std::string at_rank(const char* what, int rank) { return std::string(what) + " of rank " + std::to_string(rank); }

// What the driver knows of the allocation behind an address; SIZE_MAX where it does not tell.
std::size_t bytes_behind(std::uintptr_t address) {
    using Range = CUresult(CUdeviceptr*, std::size_t*, CUdeviceptr);
    static auto* const range = reinterpret_cast<Range*>(driver_function("cuMemGetAddressRange", 3020));
    CUdeviceptr base = 0;
    std::size_t bytes = 0;
    if (range == nullptr || range(&base, &bytes, address) != CUDA_SUCCESS) return SIZE_MAX;
    return bytes - (address - base);
}

void check_memory(std::uintptr_t address, std::size_t bytes, int device, const std::string& what) {
    if (address == 0) throw std::invalid_argument("the " + what + " needs an address");
    const DeviceScope scope(device);
    cudaPointerAttributes found{};
    GM_CUDA(cudaPointerGetAttributes(&found, reinterpret_cast<const void*>(address)));
    const bool on_device = found.type == cudaMemoryTypeDevice || found.type == cudaMemoryTypeManaged;
    if (!on_device || (found.type == cudaMemoryTypeDevice && found.device != device))
        throw std::invalid_argument("the " + what + " is no memory of device " + std::to_string(device));
    const std::size_t behind = bytes_behind(address);
    if (behind < bytes)
        throw std::invalid_argument("the " + what + " has " + std::to_string(behind) + " bytes, not the " +
                                    std::to_string(bytes) + " that are moved");
}

}  // namespace

Collective::Collective(std::shared_ptr<Communicators> communicators, const Spec& spec)
    : communicators_(std::move(communicators)),
      kind_(kind_of(spec.kind)),
      type_(nccl::type_of(kind_ == Kind::barrier ? "float32" : spec.dtype)),
      op_(nccl::op_of(spec.op)),
      count_(kind_ == Kind::barrier ? 1 : static_cast<std::size_t>(spec.count)),
      block_(count_ * type_.bytes),
      root_(spec.root),
      what_(spec.kind + " of " + std::to_string(count_) + " x " + type_.name) {
    const int size = communicators_->size();
    const std::string why = communicators_->api().why_not(type_);
    if (!why.empty()) throw std::invalid_argument(why);
    if (spec.count < 0 || count_ > (std::size_t{1} << 60) / static_cast<std::size_t>(size) / type_.bytes)
        throw std::invalid_argument("a count of " + std::to_string(spec.count) + " cannot be");
    if (root_ < 0 || root_ >= size)
        throw std::invalid_argument("root " + std::to_string(root_) + " is no rank of " + std::to_string(size));
    std::vector<std::uintptr_t> send = spec.send, receive = spec.receive;
    if (kind_ == Kind::barrier) {
        send.clear();
        for (const auto& rank : communicators_->ranks()) {
            own_.emplace_back(rank.device, block_, Memory::device).fill(0);
            send.push_back(reinterpret_cast<std::uintptr_t>(own_.back().address()));
        }
        receive = send;
    }
    place(send, receive);
}

std::size_t Collective::send_bytes(int rank) const {
    const std::size_t all = block_ * static_cast<std::size_t>(communicators_->size());
    if (kind_ == Kind::reduce_scatter || kind_ == Kind::alltoall) return all;
    if (kind_ == Kind::scatter) return rank == root_ ? all : 0;
    return kind_ == Kind::broadcast && rank != root_ ? 0 : block_;
}

std::size_t Collective::receive_bytes(int rank) const {
    const std::size_t all = block_ * static_cast<std::size_t>(communicators_->size());
    if (kind_ == Kind::all_gather || kind_ == Kind::alltoall) return all;
    if (kind_ == Kind::gather) return rank == root_ ? all : 0;
    return kind_ == Kind::reduce && rank != root_ ? 0 : block_;
}

void Collective::place(const std::vector<std::uintptr_t>& send, const std::vector<std::uintptr_t>& receive) {
    const auto& ranks = communicators_->ranks();
    if (send.size() != ranks.size() || receive.size() != ranks.size())
        throw std::invalid_argument("an address to send from and one to receive at for each of " +
                                    std::to_string(ranks.size()) + " local ranks");
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        const int rank = ranks[i].rank;
        const std::size_t out = send_bytes(rank), in = receive_bytes(rank);
        if (out != 0) check_memory(send[i], out, ranks[i].device, at_rank("send buffer", rank));
        if (in != 0) check_memory(receive[i], in, ranks[i].device, at_rank("receive buffer", rank));
        const Place made{out != 0 ? reinterpret_cast<const char*>(send[i]) : nullptr,
                         in != 0 ? reinterpret_cast<char*>(receive[i]) : nullptr};
        if (out != 0 && in != 0) in_place_ = check_overlap(made, rank) || in_place_;
        places_.push_back(made);
    }
}

// Whether it is in place as NCCL has it; any other overlap is refused.
bool Collective::check_overlap(const Place& place, int rank) const {
    const std::size_t shift = static_cast<std::size_t>(rank) * block_;
    const bool split = kind_ == Kind::reduce_scatter || kind_ == Kind::scatter;
    const bool joined = kind_ == Kind::all_gather || kind_ == Kind::gather;
    const char* const whole = split ? place.send : place.receive;
    const char* const part = split ? place.receive : place.send;
    const bool has_way = kind_ != Kind::alltoall && kind_ != Kind::sendrecv;
    if (has_way && part == whole + (split || joined ? shift : 0)) return true;
    const auto from = reinterpret_cast<std::uintptr_t>(place.send),
               to = reinterpret_cast<std::uintptr_t>(place.receive);
    if (from >= to + receive_bytes(rank) || to >= from + send_bytes(rank)) return false;
    throw std::invalid_argument(
        "the buffers of rank " + std::to_string(rank) + " overlap: " +
        (has_way ? "NCCL works in place on the rank's own block only" : "NCCL has no way to do this in place"));
}

const char* Collective::name() const { return kKnown[static_cast<std::size_t>(kind_)].function; }

void Collective::run(std::int64_t n) {
    note_launch(name(), what_);
    for (std::int64_t i = 0; i < n; ++i) communicators_->enqueue(name(), [this] { add(); });
}

void Collective::add() const {
    const auto& ranks = communicators_->ranks();
    for (std::size_t i = 0; i < ranks.size(); ++i) call(ranks[i], places_[i]);
}

void Collective::call(const Communicators::Rank& rank, const Place& place) const {
    const NcclApi& api = communicators_->api();
    nccl::Result result = nccl::kSuccess;
    switch (kind_) {
        case Kind::barrier:
        case Kind::all_reduce:
            result = api.all_reduce(place.send, place.receive, count_, type_.code, op_, rank.comm, rank.stream);
            break;
        case Kind::all_gather:
            result = api.all_gather(place.send, place.receive, count_, type_.code, rank.comm, rank.stream);
            break;
        case Kind::reduce_scatter:
            result = api.reduce_scatter(place.send, place.receive, count_, type_.code, op_, rank.comm, rank.stream);
            break;
        case Kind::broadcast:
            result = api.broadcast(place.send, place.receive, count_, type_.code, root_, rank.comm, rank.stream);
            break;
        case Kind::reduce:
            result = api.reduce(place.send, place.receive, count_, type_.code, op_, root_, rank.comm, rank.stream);
            break;
        default:
            send_and_receive(rank, place);
    }
    communicators_->check(result, name(), rank);
}

void Collective::send_and_receive(const Communicators::Rank& rank, const Place& place) const {
    const int size = communicators_->size();
    if (kind_ == Kind::sendrecv) {
        exchange(rank, place, (rank.rank + 1) % size, (rank.rank + size - 1) % size);
        return;
    }
    for (int peer = 0; peer < size; ++peer) {
        const std::size_t at = static_cast<std::size_t>(peer) * block_;
        const bool to = kind_ == Kind::alltoall || (kind_ == Kind::scatter ? rank.rank : peer) == root_;
        const bool from = kind_ == Kind::alltoall || (kind_ == Kind::scatter ? peer : rank.rank) == root_;
        const Place block{place.send + (kind_ == Kind::gather || !to ? 0 : at),
                          place.receive + (kind_ == Kind::scatter || !from ? 0 : at)};
        if (peer == rank.rank && block.send == block.receive) continue;  // the root's own, in place
        exchange(rank, block, to ? peer : -1, from ? peer : -1);
    }
}

// A send and a receipt, either of which may be missing: -1.
void Collective::exchange(const Communicators::Rank& rank, const Place& place, int to, int from) const {
    const NcclApi& api = communicators_->api();
    if (to >= 0)
        communicators_->check(api.send(place.send, count_, type_.code, to, rank.comm, rank.stream), "ncclSend", rank);
    if (from >= 0)
        communicators_->check(api.recv(place.receive, count_, type_.code, from, rank.comm, rank.stream), "ncclRecv",
                              rank);
}

CollectiveGroup::CollectiveGroup(std::vector<const Collective*> collectives) : collectives_(std::move(collectives)) {
    if (collectives_.empty()) throw std::invalid_argument("a group of no collectives");
    for (const Collective* one : collectives_) {
        if (one->communicators() != communicators())
            throw std::invalid_argument("a group is of one set of communicators");
    }
}

void CollectiveGroup::run(std::int64_t n) {
    note_launch("ncclGroupEnd", collectives_[0]->what() + (collectives_.size() > 1 ? " and others" : ""));
    for (std::int64_t i = 0; i < n; ++i) {
        communicators()->enqueue("ncclGroupEnd", [this] {
            for (const Collective* one : collectives_) one->add();
        });
    }
}

}  // namespace gm
