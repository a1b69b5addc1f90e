#include "cuda/copies.hpp"

#include <stdexcept>

#include "cuda/stream.hpp"

namespace gm {
namespace {

template <class T, class... Arguments>
T made_on(int device, Arguments... arguments) {
    const DeviceScope scope(device);
    return T(arguments...);
}

// Turns access of `device` to the memory of `peer` on or off; whether it was on before.
bool set_access(int device, int peer, bool wanted) {
    const DeviceScope scope(device);
    const cudaError_t code = wanted ? cudaDeviceEnablePeerAccess(peer, 0) : cudaDeviceDisablePeerAccess(peer);
    const bool as_it_was = code == (wanted ? cudaErrorPeerAccessAlreadyEnabled : cudaErrorPeerAccessNotEnabled);
    if (as_it_was)
        forget(code);
    else if (code != cudaSuccess)
        fail(code, wanted ? "cudaDeviceEnablePeerAccess" : "cudaDeviceDisablePeerAccess");
    return as_it_was == wanted;
}

}  // namespace

cudaMemcpyKind kind_of(const std::string& direction) {
    if (direction == "h2d") return cudaMemcpyHostToDevice;
    if (direction == "d2h") return cudaMemcpyDeviceToHost;
    if (direction == "d2d") return cudaMemcpyDeviceToDevice;
    throw std::invalid_argument("unknown direction '" + direction + "': h2d, d2h or d2d");
}

Copy::Copy(int device, const Transfer& transfer, cudaMemcpyKind kind)
    : device_(device), stream_(measuring_stream(device)), transfer_(transfer), kind_(kind) {}

void Copy::run(std::int64_t n) {
    const DeviceScope scope(device_);
    for (std::int64_t i = 0; i < n; ++i)
        GM_CUDA(cudaMemcpyAsync(transfer_.to, transfer_.from, transfer_.size_bytes, kind_, stream_));
}

CopyBoth::CopyBoth(int device, const Transfer& in, const Transfer& out)
    : device_(device),
      stream_(measuring_stream(device)),
      beside_(made_on<Stream>(device)),
      fork_(made_on<Event>(device, unsigned{cudaEventDisableTiming})),
      join_(made_on<Event>(device, unsigned{cudaEventDisableTiming})),
      in_(in),
      out_(out) {}

void CopyBoth::run(std::int64_t n) {
    const DeviceScope scope(device_);
    GM_CUDA(cudaEventRecord(fork_.get(), stream_));
    GM_CUDA(cudaStreamWaitEvent(beside_.get(), fork_.get(), 0));
    for (std::int64_t i = 0; i < n; ++i) {
        GM_CUDA(cudaMemcpyAsync(in_.to, in_.from, in_.size_bytes, cudaMemcpyHostToDevice, stream_));
        GM_CUDA(cudaMemcpyAsync(out_.to, out_.from, out_.size_bytes, cudaMemcpyDeviceToHost, beside_.get()));
    }
    GM_CUDA(cudaEventRecord(join_.get(), beside_.get()));
    GM_CUDA(cudaStreamWaitEvent(stream_, join_.get(), 0));
}

CopyPeer::CopyPeer(int from_device, int to_device, const Transfer& transfer)
    : from_device_(from_device), to_device_(to_device), stream_(measuring_stream(from_device)), transfer_(transfer) {}

void CopyPeer::run(std::int64_t n) {
    const DeviceScope scope(from_device_);
    for (std::int64_t i = 0; i < n; ++i)
        GM_CUDA(
            cudaMemcpyPeerAsync(transfer_.to, to_device_, transfer_.from, from_device_, transfer_.size_bytes, stream_));
}

PeerAccess::PeerAccess(int a, int b, bool wanted) : a_(a), b_(b), wanted_(wanted) {
    before_[0] = set_access(a, b, wanted);
    try {
        before_[1] = set_access(b, a, wanted);
    } catch (...) {
        if (before_[0] != wanted) set_access(a, b, before_[0]);
        throw;
    }
}

PeerAccess::~PeerAccess() {
    try {
        if (before_[0] != wanted_) set_access(a_, b_, before_[0]);
        if (before_[1] != wanted_) set_access(b_, a_, before_[1]);
    } catch (const CudaFailure&) {  // the device is lost: nothing is left to put back
    }
}

bool PeerAccess::possible(int a, int b) {
    int forth = 0, back = 0;
    GM_CUDA(cudaDeviceCanAccessPeer(&forth, a, b));
    GM_CUDA(cudaDeviceCanAccessPeer(&back, b, a));
    return forth != 0 && back != 0;
}

}  // namespace gm
