// What the kernels have executed, summed by kernel.
#pragma once
#include <string>

#include "block.hpp"

namespace ptxemu {
void add_counts(const Launch& launch, const Tally& tally);
void reset_counts();
// {"kernel": {"demangled": ..., "launches": ..., "instructions": {"fma.f32": ...}, "bytes": {"global": {"loaded":
// ...}}, ...}}
std::string counts_json();
}  // namespace ptxemu
