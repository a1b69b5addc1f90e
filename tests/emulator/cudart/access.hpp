// From the address operand of an instruction to checked addresses of the host, lane by lane.
#pragma once
#include "program.hpp"
#include "warp.hpp"

namespace ptxemu {
enum class Use : u8 { load, store, atomic };

struct LaneAddresses {
    alignas(64) u64 at[kLanes];  // of the host; only of lanes that are on
};

// Resolves in[slot] + offset in `space`. Throws Fault for what is misaligned or out of bounds; generic addresses are
// counted by the space they turn out to lie in.
void resolve(Warp& warp, const Source& base, u64 offset, Space space, u32 bytes, Use use, LaneAddresses* addresses);

// One access without alignment rule, for copies: [host address] within global or shared memory.
u8* resolve_lane(Warp& warp, int lane, u64 address, Space space, u32 bytes, Use use);

// Handlers that decoding itself makes.
void copy_local_memory(Warp& warp, const Instruction& instruction);
void call_unknown(Warp& warp, const Instruction& instruction);
}  // namespace ptxemu
