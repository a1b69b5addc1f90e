#include "groups.hpp"

#include <thread>
#include <utility>

namespace ncclemu {
namespace {
thread_local int depth = 0;
thread_local Group pending;

void run(void* argument) {
    const Launch& launch = *static_cast<const Launch*>(argument);
    perform(*launch.comm, launch.operations);
    --launch.comm->busy;
}
void run_once(void* argument) {
    const std::unique_ptr<Launch> launch(static_cast<Launch*>(argument));
    run(launch.get());
}
void run_again(void* argument) {  // in a graph, any number of times
    ++static_cast<Launch*>(argument)->comm->busy;
    run(argument);
}

Result launch(const Launch& wanted) {
    cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
    if (cudaStreamIsCapturing(wanted.stream, &capturing) != cudaSuccess) return kUnhandledCudaError;
    auto made = std::make_unique<Launch>(wanted);
    if (capturing != cudaStreamCaptureStatusNone) {
        static auto& captured = *new std::vector<std::unique_ptr<Launch>>;  // graphs do not tell when they go
        static std::mutex guard;
        const std::lock_guard<std::mutex> held(guard);
        captured.push_back(std::move(made));
        const cudaError_t code = cudaLaunchHostFunc(wanted.stream, run_again, captured.back().get());
        return code == cudaSuccess ? kSuccess : kUnhandledCudaError;
    }
    ++wanted.comm->busy;
    if (cudaLaunchHostFunc(wanted.stream, run_once, made.get()) != cudaSuccess) {
        --wanted.comm->busy;
        return kUnhandledCudaError;
    }
    (void)made.release();
    return kSuccess;
}

void finish(Comm& comm, int own) {  // what runs for it, but for the threads that ask
    for (int turn = 0; comm.busy > own && !comm.aborted; ++turn) rest(turn);
}

// Behind the caller's back, as the library does for communicators that do not block.
Result later(Group group) {
    for (const auto& comm : group.ends) comm->state = kInProgress;
    for (const Launch& one : group.launches) one.comm->state = kInProgress;
    std::vector<Busy> busy;
    for (const auto& comm : group.ends) busy.emplace_back(comm);
    for (const Launch& one : group.launches) busy.emplace_back(one.comm);
    std::thread([group = std::move(group), busy = std::move(busy)] {
        rest(100);
        for (const auto& comm : group.ends) finish(*comm, 1);
        std::vector<Result> results;
        for (const Launch& one : group.launches) results.push_back(launch(one));
        for (const auto& comm : group.ends) comm->state = kSuccess;
        for (std::size_t i = 0; i < results.size(); ++i) {
            int in_progress = kInProgress;
            group.launches[i].comm->state.compare_exchange_strong(in_progress, results[i]);
        }
    }).detach();
    return kInProgress;
}

Result come_all(const std::vector<std::shared_ptr<Comm>>& comms) {
    std::vector<std::thread> threads;
    bool blocking = true;
    for (const auto& comm : comms) {
        blocking = blocking && comm->blocking;
        threads.emplace_back([busy = std::make_shared<Busy>(comm), comm] { (void)comm->come(); });
    }
    Result worst = blocking ? kSuccess : kInProgress;
    for (std::size_t i = 0; i < threads.size(); ++i) {
        if (!blocking) {
            threads[i].detach();
            continue;
        }
        threads[i].join();
        if (comms[i]->state != kSuccess) worst = static_cast<Result>(comms[i]->state.load());
    }
    return worst;
}

Result start(Group group) {
    const Result result = group.inits.empty() ? kSuccess : come_all(group.inits);
    bool blocking = true;
    for (const auto& comm : group.ends) blocking = blocking && comm->blocking;
    for (const Launch& one : group.launches) blocking = blocking && one.comm->blocking;
    if (result != kSuccess || (group.ends.empty() && group.launches.empty())) return result;
    if (!blocking) return later(std::move(group));
    for (const auto& comm : group.ends) finish(*comm, 0);
    for (const Launch& one : group.launches) {
        const Result launched = launch(one);
        if (launched != kSuccess) return launched;
    }
    return kSuccess;
}
}  // namespace

void open_group() { ++depth; }

Result close_group() {
    if (depth == 0) return kInvalidUsage;
    return --depth > 0 ? kSuccess : start(std::exchange(pending, {}));
}

Result in_group(Group group) {
    if (depth == 0) return start(std::move(group));
    for (const auto& comm : group.inits) pending.inits.push_back(comm);
    for (const auto& comm : group.ends) pending.ends.push_back(comm);
    for (const Launch& one : group.launches) {  // of one communicator and stream: one operation, to the device
        bool merged = false;
        for (Launch& there : pending.launches) {
            if (there.comm != one.comm || there.stream != one.stream) continue;
            there.operations.insert(there.operations.end(), one.operations.begin(), one.operations.end());
            merged = true;
        }
        if (!merged) pending.launches.push_back(one);
    }
    bool blocking = true;
    for (const auto& comm : group.inits) blocking = blocking && comm->blocking;
    for (const Launch& one : group.launches) blocking = blocking && one.comm->blocking;
    return blocking ? kSuccess : kInProgress;
}
}  // namespace ncclemu
