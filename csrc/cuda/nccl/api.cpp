#include "cuda/nccl/api.hpp"

#include <array>
#include <type_traits>

namespace gm {
namespace nccl {

std::string version_text(int version) {
    const int major = version < 10000 ? version / 1000 : version / 10000;  // 2.8 and before: 2804; since: 20904
    const int minor = version < 10000 ? version / 100 % 10 : version / 100 % 100;
    return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(version % 100);
}

const DataType& type_of(const std::string& name) {
    static const DataType types[] = {
        {"int8", 0, 1, kOldest},     {"uint8", 1, 1, kOldest},        {"int32", 2, 4, kOldest},
        {"uint32", 3, 4, kOldest},   {"int64", 4, 8, kOldest},        {"uint64", 5, 8, kOldest},
        {"float16", 6, 2, kOldest},  {"float32", 7, 4, kOldest},      {"float64", 8, 8, kOldest},
        {"bfloat16", 9, 2, kOldest}, {"float8_e4m3fn", 10, 1, 22400}, {"float8_e5m2", 11, 1, 22400},
    };
    std::string all;
    for (const DataType& type : types) {
        if (name == type.name) return type;
        all += (all.empty() ? "" : ", ") + std::string(type.name);
    }
    throw std::invalid_argument("NCCL has no type '" + name + "': " + all);
}

Op op_of(const std::string& name) {
    static const char* const names[] = {"sum", "prod", "max", "min", "avg"};  // ncclRedOp_t, from 0
    for (std::size_t i = 0; i < std::size(names); ++i) {
        if (name == names[i]) return static_cast<Op>(i);
    }
    throw std::invalid_argument("NCCL has no operator '" + name + "': sum, prod, min, max, avg");
}

}  // namespace nccl

namespace {

std::string result_name(nccl::Result code) {
    static const char* const names[] = {"ncclSuccess",       "ncclUnhandledCudaError", "ncclSystemError",
                                        "ncclInternalError", "ncclInvalidArgument",    "ncclInvalidUsage",
                                        "ncclRemoteError",   "ncclInProgress",         "ncclTimeout"};
    return code >= 0 && code < static_cast<int>(std::size(names)) ? names[code] : "unknown result";
}

std::string message(const std::string& call, nccl::Result code, const std::string& text, const std::string& detail,
                    std::optional<int> rank) {
    const std::string where = rank ? " at rank " + std::to_string(*rank) : "";
    return call + where + ": " + result_name(code) + " (" + std::to_string(code) + "): " + text +
           (detail.empty() ? "" : ": " + detail);
}

template <class Member>
using Function = std::remove_pointer_t<std::remove_cv_t<Member>>;

}  // namespace

NcclFailure::NcclFailure(std::string call_, nccl::Result code_, std::string text_, std::string detail_,
                         std::optional<int> rank_, bool timed_out_)
    : std::runtime_error(message(call_, code_, text_, detail_, rank_)),
      call(std::move(call_)),
      code(code_),
      name(result_name(code_)),
      text(std::move(text_)),
      detail(std::move(detail_)),
      rank(rank_),
      timed_out(timed_out_) {}

// `get` needs the function's type: that of the member it goes to. GM_NCCL_OR_NULL is for what came after 2.10.
#define GM_NCCL(MEMBER, SYMBOL) MEMBER(library_.get<Function<decltype(MEMBER)>>(SYMBOL))
#define GM_NCCL_OR_NULL(MEMBER, SYMBOL) \
    MEMBER(reinterpret_cast<std::remove_cv_t<decltype(MEMBER)>>(library_.find(SYMBOL)))
NcclApi::NcclApi(const std::string& path)
    : library_(path),
      GM_NCCL(get_version_, "ncclGetVersion"),
      version_(version_now()),
      GM_NCCL(get_unique_id, "ncclGetUniqueId"),
      GM_NCCL(init_rank, "ncclCommInitRank"),
      GM_NCCL_OR_NULL(init_rank_config, "ncclCommInitRankConfig"),
      GM_NCCL(init_all, "ncclCommInitAll"),
      GM_NCCL_OR_NULL(finalize, "ncclCommFinalize"),
      GM_NCCL(destroy, "ncclCommDestroy"),
      GM_NCCL(abort, "ncclCommAbort"),
      GM_NCCL(async_error, "ncclCommGetAsyncError"),
      GM_NCCL(error_text, "ncclGetErrorString"),
      GM_NCCL_OR_NULL(last_error_, "ncclGetLastError"),
      GM_NCCL(group_start, "ncclGroupStart"),
      GM_NCCL(group_end, "ncclGroupEnd"),
      GM_NCCL(all_reduce, "ncclAllReduce"),
      GM_NCCL(all_gather, "ncclAllGather"),
      GM_NCCL(reduce_scatter, "ncclReduceScatter"),
      GM_NCCL(broadcast, "ncclBroadcast"),
      GM_NCCL(reduce, "ncclReduce"),
      GM_NCCL(send, "ncclSend"),
      GM_NCCL(recv, "ncclRecv") {}
#undef GM_NCCL
#undef GM_NCCL_OR_NULL

int NcclApi::version_now() const {
    int version = 0;
    if (get_version_(&version) != nccl::kSuccess) throw std::runtime_error(path() + " does not tell its version");
    if (version < nccl::kOldest)
        throw std::runtime_error(path() + " is NCCL " + nccl::version_text(version) + "; " +
                                 nccl::version_text(nccl::kOldest) + " or newer is needed");
    return version;
}

std::string NcclApi::why_not(const nccl::DataType& type) const {
    if (version_ >= type.since) return "";
    return std::string(type.name) + " needs NCCL " + nccl::version_text(type.since) + "; this is " +
           nccl::version_text(version_);
}

nccl::UniqueId NcclApi::make_id() const {
    nccl::UniqueId id{};
    check(get_unique_id(&id), "ncclGetUniqueId");
    return id;
}

std::string NcclApi::last_error(nccl::Comm comm) const {
    const char* const text = last_error_ != nullptr ? last_error_(comm) : nullptr;
    return text != nullptr ? text : "";
}

void NcclApi::check(nccl::Result result, const char* call, std::optional<int> rank, nccl::Comm comm) const {
    if (result == nccl::kSuccess || result == nccl::kInProgress) return;
    const char* const text = error_text(result);
    throw NcclFailure(call, result, text != nullptr ? text : "unknown error", last_error(comm), rank, false);
}

}  // namespace gm
