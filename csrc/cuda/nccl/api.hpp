// The part of NCCL that is used, declared here so that no header of it is needed to build. Names and values are those
// of nccl.h ("NCCL API", docs.nvidia.com); they are the library's binary interface and the same since NCCL 2.10, what
// came later being looked for and done without.
#pragma once
#include <cuda_runtime_api.h>

#include <climits>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>

#include "cuda/loader.hpp"

namespace gm {
namespace nccl {

using Comm = struct CommOpaque*;  // ncclComm_t
using Result = int;               // ncclResult_t
using Type = int;                 // ncclDataType_t
using Op = int;                   // ncclRedOp_t

constexpr Result kSuccess = 0, kUnhandledCudaError = 1, kInvalidUsage = 5, kInProgress = 7;

struct UniqueId {  // ncclUniqueId
    char internal[128];
};

// ncclConfig_t as of 2.14; later versions take it as it is and add their own defaults ("size" tells them).
struct Config {
    std::size_t size = sizeof(Config);
    unsigned magic = 0xcafebeef;
    unsigned version = 21400;
    int blocking = 0;
};
static_assert(sizeof(Config) == 24, "as the library reads it");

constexpr int kOldest = 21000;  // 2.10: the average, and bfloat16

std::string version_text(int version);  // "2.32.3"

struct DataType {
    const char* name;
    Type code;
    std::size_t bytes;
    int since;  // version
};
// By NumPy's name for it. Throws std::invalid_argument for one that no NCCL has.
const DataType& type_of(const std::string& name);
// "sum", "prod", "max", "min", "avg". Throws std::invalid_argument.
Op op_of(const std::string& name);

}  // namespace nccl

// What NCCL said. Python sees it as gpumicro.errors.NcclError.
class NcclFailure : public std::runtime_error {
  public:
    NcclFailure(std::string call, nccl::Result code, std::string text, std::string detail, std::optional<int> rank,
                bool timed_out);
    const std::string call;  // "ncclAllReduce"
    const nccl::Result code;
    const std::string name;    // "ncclRemoteError"
    const std::string text;    // what the code means, or what was waited for
    const std::string detail;  // ncclGetLastError, "" where there is none
    const std::optional<int> rank;
    const bool timed_out;
};

// The library's functions. Throws std::runtime_error where it cannot be opened, lacks one or is too old.
class NcclApi {
  public:
    explicit NcclApi(const std::string& path);

    const std::string& path() const { return library_.path(); }
    int version() const { return version_; }
    // Why this version cannot do with that type, "" where it can.
    std::string why_not(const nccl::DataType& type) const;
    nccl::UniqueId make_id() const;
    // Throws NcclFailure unless it is success or, where work goes on behind a call, "in progress".
    void check(nccl::Result result, const char* call, std::optional<int> rank = std::nullopt,
               nccl::Comm comm = nullptr) const;
    std::string last_error(nccl::Comm comm) const;

  private:
    int version_now() const;
    Library library_;  // before the functions, which are taken from it
    nccl::Result (*const get_version_)(int*);
    int version_;  // before the functions that an older one lacks

  public:
    nccl::Result (*const get_unique_id)(nccl::UniqueId*);
    nccl::Result (*const init_rank)(nccl::Comm*, int ranks, nccl::UniqueId, int rank);
    nccl::Result (*const init_rank_config)(nccl::Comm*, int ranks, nccl::UniqueId, int rank, nccl::Config*);  // or null
    nccl::Result (*const init_all)(nccl::Comm*, int devices, const int*);
    nccl::Result (*const finalize)(nccl::Comm);  // or null
    nccl::Result (*const destroy)(nccl::Comm);
    nccl::Result (*const abort)(nccl::Comm);
    nccl::Result (*const async_error)(nccl::Comm, nccl::Result*);
    const char* (*const error_text)(nccl::Result);
    const char* (*const last_error_)(nccl::Comm);  // or null
    nccl::Result (*const group_start)();
    nccl::Result (*const group_end)();
    nccl::Result (*const all_reduce)(const void*, void*, std::size_t, nccl::Type, nccl::Op, nccl::Comm, cudaStream_t);
    nccl::Result (*const all_gather)(const void*, void*, std::size_t, nccl::Type, nccl::Comm, cudaStream_t);
    nccl::Result (*const reduce_scatter)(const void*, void*, std::size_t, nccl::Type, nccl::Op, nccl::Comm,
                                         cudaStream_t);
    nccl::Result (*const broadcast)(const void*, void*, std::size_t, nccl::Type, int root, nccl::Comm, cudaStream_t);
    nccl::Result (*const reduce)(const void*, void*, std::size_t, nccl::Type, nccl::Op, int root, nccl::Comm,
                                 cudaStream_t);
    nccl::Result (*const send)(const void*, std::size_t, nccl::Type, int peer, nccl::Comm, cudaStream_t);
    nccl::Result (*const recv)(void*, std::size_t, nccl::Type, int peer, nccl::Comm, cudaStream_t);
};

}  // namespace gm
