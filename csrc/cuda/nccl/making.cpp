// How communicators come to be, within their time.
#include <set>

#include "cuda/handles.hpp"
#include "cuda/nccl/bounded.hpp"
#include "cuda/nccl/communicators.hpp"
#include "cuda/nccl/watchdog.hpp"
#include "cuda/stream.hpp"

namespace gm {

Communicators::Communicators(std::shared_ptr<const NcclApi> api, int size, const nccl::UniqueId& id,
                             const std::vector<int>& ranks, const std::vector<int>& devices, const NcclOptions& options)
    : timeout_s(options.timeout_s),
      api_(std::move(api)),
      size_(size),
      blocking_(options.blocking || api_->init_rank_config == nullptr) {
    place(ranks, devices);
    if (blocking_)
        make_blocking(&id);
    else
        make(id);
}

Communicators::Communicators(std::shared_ptr<const NcclApi> api, const std::vector<int>& devices,
                             const NcclOptions& options)
    : timeout_s(options.timeout_s),
      api_(std::move(api)),
      size_(static_cast<int>(devices.size())),
      blocking_(options.blocking || api_->init_rank_config == nullptr) {
    std::vector<int> ranks(devices.size());
    for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i] = static_cast<int>(i);
    place(ranks, devices);
    if (blocking_)
        make_blocking(nullptr);
    else
        make(api_->make_id());
}

void Communicators::place(const std::vector<int>& ranks, const std::vector<int>& devices) {
    if (!(timeout_s > 0.0)) throw std::invalid_argument("timeout_s must be positive");
    if (ranks.empty() || ranks.size() != devices.size())
        throw std::invalid_argument("a device for each rank, and at least one: there are " +
                                    std::to_string(ranks.size()) + " ranks and " + std::to_string(devices.size()) +
                                    " devices");
    int count = 0;
    GM_CUDA(cudaGetDeviceCount(&count));
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        if (ranks[i] < 0 || ranks[i] >= size_)
            throw std::invalid_argument("rank " + std::to_string(ranks[i]) + " is none of " + std::to_string(size_));
        if (devices[i] < 0 || devices[i] >= count)
            throw std::invalid_argument("there is no CUDA device " + std::to_string(devices[i]) + ": there are " +
                                        std::to_string(count));
        ranks_.push_back({ranks[i], devices[i], measuring_stream(devices[i]), nullptr});
    }
    if (std::set<int>(ranks.begin(), ranks.end()).size() != ranks.size() ||
        std::set<int>(devices.begin(), devices.end()).size() != devices.size())
        throw std::invalid_argument("each rank and each device once: NCCL wants a device for every rank");
}

// Non-blocking: NCCL goes on behind the call and is asked how far it is.
void Communicators::make(const nccl::UniqueId& id) {
    const char* const call = "ncclCommInitRankConfig";
    nccl::Config config;
    enqueue(call, [&] {
        for (Rank& rank : ranks_) {
            const DeviceScope scope(rank.device);
            check(api_->init_rank_config(&rank.comm, size_, id, rank.rank, &config), call, rank);
        }
    });
    enlist();
}

// By a thread that is left to itself when it takes too long. No id: all ranks are here.
void Communicators::make_blocking(const nccl::UniqueId* id) {
    struct Made {
        std::shared_ptr<const NcclApi> api;
        std::vector<Rank> ranks;
        int size;
        std::optional<nccl::UniqueId> id;
        nccl::Result result = nccl::kSuccess;
        std::string detail;
        void all() {
            std::vector<int> devices;
            std::vector<nccl::Comm> comms(ranks.size());
            for (const Rank& rank : ranks) devices.push_back(rank.device);
            result = api->init_all(comms.data(), size, devices.data());
            for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i].comm = comms[i];
        }
        void some() {
            result = api->group_start();
            for (Rank& rank : ranks) {
                if (result == nccl::kSuccess && cudaSetDevice(rank.device) != cudaSuccess)
                    result = nccl::kUnhandledCudaError;
                if (result == nccl::kSuccess) result = api->init_rank(&rank.comm, size, *id, rank.rank);
            }
            const nccl::Result ended = api->group_end();
            if (result == nccl::kSuccess) result = ended;
        }
    };
    const char* const call = id != nullptr ? "ncclCommInitRank" : "ncclCommInitAll";
    const auto made = std::make_shared<Made>();
    *made = {api_, ranks_, size_, std::nullopt, nccl::kSuccess, ""};
    if (id != nullptr) made->id = *id;
    const bool came = bounded(timeout_s, 1, [made](std::size_t) {
        made->id ? made->some() : made->all();
        if (made->result != nccl::kSuccess) made->detail = made->api->last_error(nullptr);
    });
    if (!came) time_out(call);
    if (made->result != nccl::kSuccess) {
        const char* const text = api_->error_text(made->result);
        throw NcclFailure(call, made->result, text != nullptr ? text : "", made->detail, ranks_[0].rank, false);
    }
    ranks_ = made->ranks;
    watchdog_ = std::make_unique<Watchdog>([this] {
        expired_ = true;
        abort();
    });
    enlist();
}

}  // namespace gm
