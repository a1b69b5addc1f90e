#include "special.hpp"

#include <time.h>

#include <array>

#include "block.hpp"
#include "warp.hpp"

namespace ptxemu {
namespace {
enum Id {
    tid_x,
    tid_y,
    tid_z,
    ntid_x,
    ntid_y,
    ntid_z,
    ctaid_x,
    ctaid_y,
    ctaid_z,
    nctaid_x,
    nctaid_y,
    nctaid_z,
    laneid,
    warpid,
    nwarpid,
    smid,
    nsmid,
    gridid,
    lanemask_eq,
    lanemask_lt,
    lanemask_le,
    lanemask_gt,
    lanemask_ge,
    dynamic_smem,
    total_smem,
    envreg1,
    envreg2,
    warp_size,
    cluster_one,
    cluster_zero,
    clock_low,
    clock_high,
    clock_wide,
    timer,
    timer_low,
    timer_high
};  // clang-format keeps the columns
struct Name {
    const char* name;
    Id id;
};
constexpr std::array<Name, 46> kNames{{
    {"%tid.x", tid_x},
    {"%tid.y", tid_y},
    {"%tid.z", tid_z},
    {"%ntid.x", ntid_x},
    {"%ntid.y", ntid_y},
    {"%ntid.z", ntid_z},
    {"%ctaid.x", ctaid_x},
    {"%ctaid.y", ctaid_y},
    {"%ctaid.z", ctaid_z},
    {"%nctaid.x", nctaid_x},
    {"%nctaid.y", nctaid_y},
    {"%nctaid.z", nctaid_z},
    {"%laneid", laneid},
    {"%warpid", warpid},
    {"%nwarpid", nwarpid},
    {"%smid", smid},
    {"%nsmid", nsmid},
    {"%gridid", gridid},
    {"%lanemask_eq", lanemask_eq},
    {"%lanemask_lt", lanemask_lt},
    {"%lanemask_le", lanemask_le},
    {"%lanemask_gt", lanemask_gt},
    {"%lanemask_ge", lanemask_ge},
    {"%dynamic_smem_size", dynamic_smem},
    {"%total_smem_size", total_smem},
    {"%envreg1", envreg1},
    {"%envreg2", envreg2},
    {"WARP_SZ", warp_size},
    {"%cluster_nctaid.x", cluster_one},
    {"%cluster_nctaid.y", cluster_one},
    {"%cluster_nctaid.z", cluster_one},
    {"%cluster_nctarank", cluster_one},
    {"%cluster_ctaid.x", cluster_zero},
    {"%cluster_ctaid.y", cluster_zero},
    {"%cluster_ctaid.z", cluster_zero},
    {"%cluster_ctarank", cluster_zero},
    {"%is_explicit_cluster", cluster_zero},
    {"%clock", clock_low},
    {"%clock_hi", clock_high},
    {"%clock64", clock_wide},
    {"%globaltimer", timer},
    {"%globaltimer_lo", timer_low},
    {"%globaltimer_hi", timer_high},
    {"%nclusterid.x", nctaid_x},
    {"%clusterid.x", ctaid_x},
    {"%clusterid.y", ctaid_y},
}};

u64 nanoseconds() {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    return static_cast<u64>(now.tv_sec) * 1000000000u + static_cast<u64>(now.tv_nsec);
}

u64 thread_value(int id, const Warp& warp, u32 thread, u32 lane) {
    const Launch& launch = *warp.block->launch;
    const auto axis = [&](int first) { return static_cast<std::size_t>(id - first); };
    const u32 above = lane == 31 ? 0 : kEveryLane << (lane + 1);
    switch (id) {
        case tid_x:
            return thread % launch.block[0];
        case tid_y:
            return thread / launch.block[0] % launch.block[1];
        case tid_z:
            return thread / launch.block[0] / launch.block[1];
        case ntid_x:
        case ntid_y:
        case ntid_z:
            return launch.block[axis(ntid_x)];
        case ctaid_x:
        case ctaid_y:
        case ctaid_z:
            return warp.block->id[axis(ctaid_x)];
        case nctaid_x:
        case nctaid_y:
        case nctaid_z:
            return launch.grid[axis(nctaid_x)];
        case laneid:
            return lane;
        case warpid:
            return warp.index;
        case nwarpid:
            return warp.block->warps.size();
        case smid:
            return warp.block->number % launch.multiprocessors;
        case nsmid:
            return launch.multiprocessors;
        case gridid:
            return launch.number;
        case lanemask_eq:
            return 1u << lane;
        case lanemask_lt:
            return (1u << lane) - 1;
        case lanemask_le:
            return static_cast<u32>(~above);
        case lanemask_gt:
            return above;
        case lanemask_ge:
            return above | 1u << lane;
        case dynamic_smem:
            return launch.dynamic_shared;
        case total_smem:
            return launch.program->shared_bytes + launch.dynamic_shared;
        case envreg1:
            return launch.grid_workspace >> 32;  // where cooperative groups look for the grid's barrier
        case envreg2:
            return static_cast<u32>(launch.grid_workspace);
        case warp_size:
            return kLanes;
        case cluster_one:
            return 1;
        default:
            return 0;
    }
}
}  // namespace

int special_named(const std::string& name) {
    for (const Name& row : kNames) {
        if (name == row.name) return row.id;
    }
    return -1;
}

bool is_clock(int id) { return id >= clock_low; }
bool is_wide(int id) { return id == clock_wide || id == timer; }

u64 read_clock(int id) {
    const u64 now = nanoseconds();
    if (id == clock_low || id == timer_low) return static_cast<u32>(now);
    if (id == clock_high || id == timer_high) return now >> 32;
    return now;
}

void read_special(int id, const Warp& warp, u64* values) {
    for (u32 lane = 0; lane < kLanes; ++lane) values[lane] = thread_value(id, warp, warp.index * kLanes + lane, lane);
}
}  // namespace ptxemu
