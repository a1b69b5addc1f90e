// Copies and fills.
#include <cstring>
#include <memory>
#include <vector>

#include "api.hpp"
#include "memory.hpp"
#include "modules.hpp"
#include "stream.hpp"

using namespace ptxemu;

namespace {
struct Rows {
    u8* to;
    const u8* from;
    std::size_t to_pitch;
    std::size_t from_pitch;
    std::size_t width;
    std::size_t height;
};

enum class Place { device, host, pageable };

// Where a range lies; false when it leaves the allocation that it begins in.
bool place_of(const void* pointer, std::size_t bytes, Place* place) {
    Allocation found;
    const u64 address = reinterpret_cast<u64>(pointer);
    if (!Memory::instance().find(address, &found)) {
        *place = Place::pageable;
        return true;
    }
    const bool on_host = found.kind == MemoryKind::pinned || found.kind == MemoryKind::registered;
    *place = on_host ? Place::host : Place::device;
    return bytes <= found.end - address;
}

cudaError_t check(const Rows& rows, cudaMemcpyKind kind, Place* to, Place* from) {
    if (rows.width > rows.to_pitch || rows.width > rows.from_pitch) return cudaErrorInvalidValue;
    const bool inside = place_of(rows.to, (rows.height - 1) * rows.to_pitch + rows.width, to) &&
                        place_of(rows.from, (rows.height - 1) * rows.from_pitch + rows.width, from);
    if (!inside || kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault)
        return inside ? cudaErrorInvalidMemcpyDirection : cudaErrorInvalidValue;
    const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if ((to_device && *to == Place::pageable) || (from_device && *from == Place::pageable))
        return cudaErrorInvalidValue;
    return cudaSuccess;
}

void run(const Rows& rows) {
    for (std::size_t row = 0; row < rows.height; ++row)
        std::memmove(rows.to + row * rows.to_pitch, rows.from + row * rows.from_pitch, rows.width);
}

// As the runtime: from pageable memory the source is read before the call returns, to it the call waits for the copy.
cudaError_t copy(const Rows& rows, cudaMemcpyKind kind, cudaStream_t handle, bool wait) {
    const auto stream = stream_of(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (rows.width == 0 || rows.height == 0) return cudaSuccess;
    if (rows.to == nullptr || rows.from == nullptr) return cudaErrorInvalidValue;
    if (wait && anything_captures()) return cudaErrorStreamCaptureImplicit;
    Place to = Place::device, from = Place::device;
    const cudaError_t code = check(rows, kind, &to, &from);
    if (code != cudaSuccess) return code;
    const int device = stream->device();
    if (stream->capture != nullptr) {
        stream->enqueue(cudaGraphNodeTypeMemcpy, [rows] { run(rows); });
        return cudaSuccess;
    }
    Rows staged = rows;
    std::shared_ptr<std::vector<u8>> kept;
    if (from == Place::pageable && !wait) {
        kept = std::make_shared<std::vector<u8>>(rows.width * rows.height);
        staged.from = kept->data();
        staged.from_pitch = rows.width;
        run(Rows{kept->data(), rows.from, rows.width, rows.from_pitch, rows.width, rows.height});
    }
    const u64 ticket = stream->submit([staged, kept, device] {
        if (context(device).failure() == cudaSuccess) run(staged);
    });
    if (wait || to == Place::pageable) {
        stream->wait(ticket);
        return context(device).failure();
    }
    return cudaSuccess;
}

Rows flat(void* to, const void* from, std::size_t bytes) {
    return {static_cast<u8*>(to), static_cast<const u8*>(from), bytes, bytes, bytes, 1};
}

cudaError_t fill(void* to, std::size_t pitch, int value, std::size_t width, std::size_t height, cudaStream_t handle,
                 bool wait) {
    const auto stream = stream_of(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (width == 0 || height == 0) return cudaSuccess;
    Place place = Place::device;
    if (!place_of(to, (height - 1) * pitch + width, &place) || place == Place::pageable || width > pitch)
        return cudaErrorInvalidValue;
    if (wait && anything_captures()) return cudaErrorStreamCaptureImplicit;
    const int device = stream->device();
    const Work work = [=] {
        if (context(device).failure() != cudaSuccess) return;
        for (std::size_t row = 0; row < height; ++row) std::memset(static_cast<u8*>(to) + row * pitch, value, width);
    };
    if (wait) {
        stream->wait(stream->submit(work));
        return context(device).failure();
    }
    stream->enqueue(cudaGraphNodeTypeMemset, work);
    return cudaSuccess;
}

// The address of a variable, and whether [offset, offset + bytes) lies in it.
cudaError_t locate(const void* symbol, std::size_t bytes, std::size_t offset, u8** out) {
    Symbol* const found = Modules::instance().symbol(symbol);
    const u64 address = found == nullptr ? 0 : Modules::instance().address(found, current_device());
    if (address == 0) return cudaErrorInvalidSymbol;
    if (offset + bytes > found->bytes) return cudaErrorInvalidValue;
    *out = reinterpret_cast<u8*>(address) + offset;
    return cudaSuccess;
}
}  // namespace

PTXEMU_API cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    return call("cudaMemcpy", [&] { return copy(flat(to, from, bytes), kind, nullptr, true); });
}
PTXEMU_API cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                                       cudaStream_t stream) {
    return call("cudaMemcpyAsync", [&] { return copy(flat(to, from, bytes), kind, stream, false); });
}
PTXEMU_API cudaError_t cudaMemcpyPeer(void* to, int, const void* from, int, std::size_t bytes) {
    return call("cudaMemcpyPeer", [&] { return copy(flat(to, from, bytes), cudaMemcpyDeviceToDevice, nullptr, true); });
}
PTXEMU_API cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, std::size_t bytes,
                                           cudaStream_t stream) {
    return call("cudaMemcpyPeerAsync",
                [&] { return copy(flat(to, from, bytes), cudaMemcpyDeviceToDevice, stream, false); });
}
PTXEMU_API cudaError_t cudaMemcpy2D(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                                    std::size_t width, std::size_t height, cudaMemcpyKind kind) {
    return call("cudaMemcpy2D", [&] {
        return copy({static_cast<u8*>(to), static_cast<const u8*>(from), to_pitch, from_pitch, width, height}, kind,
                    nullptr, true);
    });
}
PTXEMU_API cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                                         std::size_t width, std::size_t height, cudaMemcpyKind kind,
                                         cudaStream_t stream) {
    return call("cudaMemcpy2DAsync", [&] {
        return copy({static_cast<u8*>(to), static_cast<const u8*>(from), to_pitch, from_pitch, width, height}, kind,
                    stream, false);
    });
}
PTXEMU_API cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
    return call("cudaMemset", [&] { return fill(to, bytes, value, bytes, 1, nullptr, true); });
}
PTXEMU_API cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
    return call("cudaMemsetAsync", [&] { return fill(to, bytes, value, bytes, 1, stream, false); });
}
PTXEMU_API cudaError_t cudaMemset2D(void* to, std::size_t pitch, int value, std::size_t width, std::size_t height) {
    return call("cudaMemset2D", [&] { return fill(to, pitch, value, width, height, nullptr, true); });
}
PTXEMU_API cudaError_t cudaMemset2DAsync(void* to, std::size_t pitch, int value, std::size_t width, std::size_t height,
                                         cudaStream_t stream) {
    return call("cudaMemset2DAsync", [&] { return fill(to, pitch, value, width, height, stream, false); });
}
PTXEMU_API cudaError_t cudaGetSymbolAddress(void** out, const void* symbol) {
    return call("cudaGetSymbolAddress", [&] { return locate(symbol, 0, 0, reinterpret_cast<u8**>(out)); });
}
PTXEMU_API cudaError_t cudaGetSymbolSize(std::size_t* bytes, const void* symbol) {
    return call("cudaGetSymbolSize", [&] {
        Symbol* const found = Modules::instance().symbol(symbol);
        if (found == nullptr) return cudaErrorInvalidSymbol;
        *bytes = found->bytes;
        return cudaSuccess;
    });
}
PTXEMU_API cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, std::size_t bytes, std::size_t offset,
                                          cudaMemcpyKind kind) {
    return call("cudaMemcpyToSymbol", [&] {
        u8* to = nullptr;
        const cudaError_t code = locate(symbol, bytes, offset, &to);
        return code == cudaSuccess ? copy(flat(to, from, bytes), kind, nullptr, true) : code;
    });
}
PTXEMU_API cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, std::size_t bytes, std::size_t offset,
                                            cudaMemcpyKind kind) {
    return call("cudaMemcpyFromSymbol", [&] {
        u8* from = nullptr;
        const cudaError_t code = locate(symbol, bytes, offset, &from);
        return code == cudaSuccess ? copy(flat(to, from, bytes), kind, nullptr, true) : code;
    });
}
