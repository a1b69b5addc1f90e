// Special registers (PTX ISA, "Special Registers").
#pragma once
#include <string>

#include "types.hpp"

namespace ptxemu {
class Warp;
// The number of the special register `name`, -1 where it is none.
int special_named(const std::string& name);
// Clocks change while a warp runs: only mov reads them, when it is executed.
bool is_clock(int id);
u64 read_clock(int id);
bool is_wide(int id);
// Its value in each lane at the start of a warp.
void read_special(int id, const Warp& warp, u64* values);
}  // namespace ptxemu
