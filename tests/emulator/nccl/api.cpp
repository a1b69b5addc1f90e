// The functions of libnccl.so.2 that have a double here.
#include <cstring>
#include <map>
#include <thread>

#include "faults.hpp"
#include "groups.hpp"
#include "log.hpp"

#define NCCLEMU_API extern "C" __attribute__((visibility("default")))

using namespace ncclemu;

namespace {
// Handles are addresses; what they stand for lives as long as something runs for it.
std::mutex handles_guard;
std::map<const void*, std::shared_ptr<Comm>>& handles() {
    static auto* const all = new std::map<const void*, std::shared_ptr<Comm>>;
    return *all;
}

std::shared_ptr<Comm> comm_of(const void* handle) {
    const std::lock_guard<std::mutex> held(handles_guard);
    const auto at = handles().find(handle);
    return at == handles().end() ? nullptr : at->second;
}

std::shared_ptr<Comm> take(const void* handle) {
    const std::lock_guard<std::mutex> held(handles_guard);
    const auto at = handles().find(handle);
    if (at == handles().end()) return nullptr;
    const std::shared_ptr<Comm> one = at->second;
    handles().erase(at);
    return one;
}

Result refuse(const std::string& why, Result code = kInvalidArgument) {
    set_last_error(why);
    log_line(0, "WARN", why);
    return code;
}

Result init(void** out, int size, const UniqueId& id, int rank, bool blocking) {
    if (out == nullptr) return refuse("comm is null");
    *out = nullptr;
    const std::string file = file_of(id);
    if (file.empty()) return refuse("no unique id of this library");
    if (size < 1 || size > kMostRanks || rank < 0 || rank >= size)
        return refuse("Invalid rank requested : " + std::to_string(rank) + "/" + std::to_string(size));
    const auto comm = std::make_shared<Comm>();
    comm->rank = rank;
    comm->size = size;
    comm->blocking = blocking;
    comm->file = file;
    if (cudaGetDevice(&comm->device) != cudaSuccess) return refuse("no device", kUnhandledCudaError);
    {
        const std::lock_guard<std::mutex> held(handles_guard);
        handles()[comm.get()] = comm;
    }
    *out = comm.get();
    Group group;
    group.inits.push_back(comm);
    return in_group(std::move(group));
}

Result ask(const void* handle, Operation operation, cudaStream_t stream) {
    const auto comm = comm_of(handle);
    if (comm == nullptr) return refuse("comm is no communicator");
    const bool takes = operation.kind != Kind::send && (operation.kind != Kind::reduce || comm->rank == operation.peer);
    const bool gives =
        operation.kind != Kind::recv && (operation.kind != Kind::broadcast || comm->rank == operation.peer);
    if (operation.type < 0 || operation.type >= kTypes || (operation.type >= kE4M3 && library_version() < 22400))
        return refuse("invalid type " + std::to_string(operation.type));
    if (operation.op < 0 || operation.op >= kOps) return refuse("invalid reduction operation");
    if (operation.peer < 0 || operation.peer >= comm->size) return refuse("invalid root or peer");
    if (operation.count != 0 && ((takes && operation.receive == nullptr) || (gives && operation.send == nullptr)))
        return refuse("a buffer is null");
    // A communicator that is still at the last call, or has failed, takes no more.
    if (comm->state != kSuccess) return refuse("the communicator is in progress or has failed", kInvalidUsage);
    Group group;
    group.launches.push_back({comm, stream, {operation}});
    return in_group(std::move(group));
}

const u8* bytes(const void* pointer) { return static_cast<const u8*>(pointer); }
u8* bytes(void* pointer) { return static_cast<u8*>(pointer); }
}  // namespace

NCCLEMU_API Result ncclGetVersion(int* version) {
    *version = library_version();
    return kSuccess;
}
NCCLEMU_API Result ncclGetUniqueId(UniqueId* id) {
    *id = make_id();
    return kSuccess;
}
NCCLEMU_API Result ncclCommInitRank(void** comm, int size, UniqueId id, int rank) {
    return init(comm, size, id, rank, true);
}
NCCLEMU_API Result ncclCommInitRankConfig(void** comm, int size, UniqueId id, int rank, const Config* config) {
    if (config != nullptr && (config->magic != 0xcafebeef || config->size < sizeof(Config)))
        return refuse("ncclConfig_t was not made by NCCL_CONFIG_INITIALIZER");
    return init(comm, size, id, rank, config == nullptr || config->blocking != 0);
}
NCCLEMU_API Result ncclCommInitAll(void** comms, int count, const int* devices) {
    const UniqueId id = make_id();
    int before = 0;
    if (cudaGetDevice(&before) != cudaSuccess) return refuse("no device", kUnhandledCudaError);
    open_group();
    Result result = kSuccess;
    for (int rank = 0; rank < count && result == kSuccess; ++rank) {
        if (cudaSetDevice(devices != nullptr ? devices[rank] : rank) != cudaSuccess)
            result = refuse("no such device", kUnhandledCudaError);
        else
            result = init(&comms[rank], count, id, rank, true);
    }
    const Result ended = close_group();
    (void)cudaSetDevice(before);
    return result != kSuccess ? result : ended;
}
NCCLEMU_API Result ncclCommFinalize(void* handle) {
    const auto comm = comm_of(handle);
    if (comm == nullptr) return refuse("comm is no communicator");
    Group group;
    group.ends.push_back(comm);
    return in_group(std::move(group));
}
NCCLEMU_API Result ncclCommDestroy(void* handle) {
    const auto comm = take(handle);
    if (comm == nullptr) return refuse("comm is no communicator");
    for (int turn = 0; comm->others_at_work() && !comm->aborted; ++turn) rest(turn);
    comm->leave(kClosed);
    return kSuccess;
}
NCCLEMU_API Result ncclCommAbort(void* handle) {
    while (switched_on("NCCLEMU_DEAF")) rest(1000);
    const auto comm = take(handle);
    if (comm == nullptr) return refuse("comm is no communicator");
    comm->aborted = true;
    for (int turn = 0; comm->others_at_work(); ++turn) rest(turn);
    comm->leave(kAborted);
    return kSuccess;
}
NCCLEMU_API Result ncclCommGetAsyncError(void* handle, Result* state) {
    const auto comm = comm_of(handle);
    if (comm == nullptr) return refuse("comm is no communicator");
    *state = static_cast<Result>(comm->state.load());
    return kSuccess;
}
NCCLEMU_API Result ncclCommCount(void* handle, int* count) {
    const auto comm = comm_of(handle);
    if (comm == nullptr) return refuse("comm is no communicator");
    *count = comm->size;
    return kSuccess;
}
NCCLEMU_API const char* ncclGetErrorString(Result code) {
    static const char* const texts[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return code >= 0 && code <= kInProgress ? texts[code] : "unknown result code";
}
NCCLEMU_API const char* ncclGetLastError(void*) {
    thread_local std::string text;
    text = last_error();
    return text.c_str();
}
NCCLEMU_API Result ncclGroupStart() {
    open_group();
    return kSuccess;
}
NCCLEMU_API Result ncclGroupEnd() { return close_group(); }

NCCLEMU_API Result ncclAllReduce(const void* from, void* to, std::size_t count, int type, int op, void* comm,
                                 cudaStream_t stream) {
    return ask(comm, {Kind::all_reduce, bytes(from), bytes(to), count, type, op, 0}, stream);
}
NCCLEMU_API Result ncclAllGather(const void* from, void* to, std::size_t count, int type, void* comm,
                                 cudaStream_t stream) {
    return ask(comm, {Kind::all_gather, bytes(from), bytes(to), count, type, 0, 0}, stream);
}
NCCLEMU_API Result ncclReduceScatter(const void* from, void* to, std::size_t count, int type, int op, void* comm,
                                     cudaStream_t stream) {
    return ask(comm, {Kind::reduce_scatter, bytes(from), bytes(to), count, type, op, 0}, stream);
}
NCCLEMU_API Result ncclBroadcast(const void* from, void* to, std::size_t count, int type, int root, void* comm,
                                 cudaStream_t stream) {
    return ask(comm, {Kind::broadcast, bytes(from), bytes(to), count, type, 0, root}, stream);
}
NCCLEMU_API Result ncclReduce(const void* from, void* to, std::size_t count, int type, int op, int root, void* comm,
                              cudaStream_t stream) {
    return ask(comm, {Kind::reduce, bytes(from), bytes(to), count, type, op, root}, stream);
}
NCCLEMU_API Result ncclSend(const void* from, std::size_t count, int type, int peer, void* comm, cudaStream_t stream) {
    return ask(comm, {Kind::send, bytes(from), nullptr, count, type, 0, peer}, stream);
}
NCCLEMU_API Result ncclRecv(void* to, std::size_t count, int type, int peer, void* comm, cudaStream_t stream) {
    return ask(comm, {Kind::recv, nullptr, bytes(to), count, type, 0, peer}, stream);
}
