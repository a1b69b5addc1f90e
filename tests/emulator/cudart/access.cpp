#include "access.hpp"

#include <cstdio>

#include "block.hpp"
#include "fault.hpp"

namespace ptxemu {
namespace {
[[noreturn]] void refuse(int code, const char* what, const Warp& warp, int lane, u64 address, Space space, u32 bytes,
                         Use use) {
    const char* verb = use == Use::load ? "load" : use == Use::store ? "store" : "atomic";
    char text[200];
    std::snprintf(text, sizeof text, "%s: %s of %u bytes at 0x%llx in %s memory by thread %u", what, verb, bytes,
                  static_cast<unsigned long long>(address), name_of(space),
                  warp.index * kLanes + static_cast<u32>(lane));
    throw Fault(code, text);
}

void lane_addresses(const Warp& warp, const Source& base, u64 offset, u64* out) {
    if (base.wide) {
        const u64* lanes = warp.source<u64>(base);
        for (int lane = 0; lane < kLanes; ++lane) out[lane] = lanes[lane] + offset;
    } else {
        const u32* lanes = warp.source<u32>(base);
        for (int lane = 0; lane < kLanes; ++lane) out[lane] = lanes[lane] + offset;
    }
}

struct Range {
    u64 low;
    u64 high;
    u64 bits;  // the or of all
};

Range range_of(u32 mask, const u64* addresses) {
    Range range{~u64{0}, 0, 0};
    for (int lane = 0; lane < kLanes; ++lane) {
        const bool on = (mask >> lane & 1) != 0;
        const u64 address = addresses[lane];
        range.low = on && address < range.low ? address : range.low;
        range.high = on && address > range.high ? address : range.high;
        range.bits |= on ? address : 0;
    }
    return range;
}

// A generic address that is no global one: of shared memory, of this thread's local memory, or of a parameter.
bool in_window(const Warp& warp, int lane, u64 address, u32 bytes, Use use, Space* space) {
    const auto within = [&](const void* begin, u64 size) {
        const u64 first = reinterpret_cast<u64>(begin);
        return address >= first && address + bytes <= first + size;
    };
    const Launch& launch = *warp.block->launch;
    const u64 local = launch.program->local_bytes;
    if (within(warp.block->shared, warp.block->shared_bytes)) {
        *space = Space::shared;
    } else if (within(warp.local + static_cast<u64>(lane) * local, local)) {
        *space = Space::local;
    } else if (use == Use::load && within(launch.parameters.data(), launch.program->parameter_bytes)) {
        *space = Space::param;
    } else {
        return false;
    }
    return true;
}

void count(Warp& warp, Space space, u32 bytes, Use use) {
    Tally& tally = warp.block->worker->tally;
    if (use == Use::load) tally.loaded[static_cast<std::size_t>(space)] += bytes;
    if (use == Use::store) tally.stored[static_cast<std::size_t>(space)] += bytes;
}

void check_generic(Warp& warp, const u64* addresses, Space space, u32 bytes, Use use) {
    const Range range = range_of(warp.mask, addresses);
    Access& access = warp.block->worker->access;
    if (access.allowed(range.low, range.high + bytes)) {
        const u32 lanes = static_cast<u32>(__builtin_popcount(warp.mask));
        if (space == Space::generic) count(warp, Space::global, bytes * lanes, use);
        return;
    }
    for (int lane = 0; lane < kLanes; ++lane) {
        if (warp.on(lane)) resolve_lane(warp, lane, addresses[lane], space, bytes, use);
    }
}

// Addresses that count from the beginning of a memory: adds where that stands on the host.
void check_window(Warp& warp, u64* addresses, Space space, u8* begin, u64 size, u64 stride, u32 bytes, Use use) {
    for (int lane = 0; lane < kLanes; ++lane) {
        const u64 address = space == Space::shared ? static_cast<u32>(addresses[lane]) : addresses[lane];
        if (warp.on(lane) && (address > size || bytes > size - address)) {
            refuse(kIllegalAddress, "out of bounds", warp, lane, address, space, bytes, use);
        }
        addresses[lane] = reinterpret_cast<u64>(begin) + static_cast<u64>(lane) * stride + address;
    }
}
}  // namespace

u8* resolve_lane(Warp& warp, int lane, u64 address, Space space, u32 bytes, Use use) {
    Block& block = *warp.block;
    if (space == Space::shared) {
        const u64 at = static_cast<u32>(address);
        if (at + bytes > block.shared_bytes)
            refuse(kIllegalAddress, "out of bounds", warp, lane, at, space, bytes, use);
        return block.shared + at;
    }
    Space found = Space::global;
    const bool allowed = block.worker->access.allowed(address, address + bytes);
    if (!allowed && !(space == Space::generic && in_window(warp, lane, address, bytes, use, &found))) {
        refuse(kIllegalAddress, "out of bounds", warp, lane, address, space, bytes, use);
    }
    if (space == Space::generic) count(warp, found, bytes, use);
    return reinterpret_cast<u8*>(address);
}

void resolve(Warp& warp, const Source& base, u64 offset, Space space, u32 bytes, Use use, LaneAddresses* addresses) {
    u64* const at = addresses->at;
    lane_addresses(warp, base, offset, at);
    if ((range_of(warp.mask, at).bits & (bytes - 1)) != 0) {
        for (int lane = 0; lane < kLanes; ++lane) {
            if (!warp.on(lane) || (at[lane] & (bytes - 1)) == 0) continue;
            refuse(kMisalignedAddress, "misaligned address", warp, lane, at[lane], space, bytes, use);
        }
    }
    Block& block = *warp.block;
    const Launch& launch = *block.launch;
    switch (space) {
        case Space::shared:
            check_window(warp, at, space, block.shared, block.shared_bytes, 0, bytes, use);
            break;
        case Space::local:
            check_window(warp, at, space, warp.local, launch.program->local_bytes, launch.program->local_bytes, bytes,
                         use);
            break;
        case Space::param:
            check_window(warp, at, space, const_cast<u8*>(launch.parameters.data()), launch.program->parameter_bytes, 0,
                         bytes, use);
            break;
        default:
            check_generic(warp, at, space, bytes, use);
    }
}

void copy_local_memory(Warp& warp, const Instruction& instruction) {
    const u64 stride = warp.block->launch->program->local_bytes;
    for (int lane = 0; lane < kLanes; ++lane) {
        u8* const local = warp.local + static_cast<u64>(lane) * stride;
        if (warp.on(lane)) std::memcpy(local + instruction.target, local + instruction.offset, instruction.immediate);
    }
}

void call_unknown(Warp&, const Instruction& instruction) {
    if (instruction.mode == 1) throw Fault(kAssert, "an assertion failed");
    throw Fault(kNotSupported, "call of a function that is not in the module");
}
}  // namespace ptxemu
