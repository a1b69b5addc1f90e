// Elements of every type, combined.
#pragma once
#include <cstddef>

#include "abi.hpp"

namespace ncclemu {
// result[i] = the operation over ranks of parts[rank][i]. Parts lie one after the other, `count` elements each; floats
// of less than 32 bits are combined in 32 and rounded once. The average of integers is rounded towards zero.
void reduce(int type, int op, const u8* parts, int ranks, std::size_t count, u8* result);
}  // namespace ncclemu
