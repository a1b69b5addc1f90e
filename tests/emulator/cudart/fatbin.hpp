// The PTX in a fat binary, as nvcc embeds it.
#pragma once
#include <string>

#include "types.hpp"

namespace ptxemu {
// The PTX of the newest architecture that is not above `capability` (90 for 9.0); "" and a reason where there is none.
std::string ptx_of(const void* wrapper, u32 capability, std::string* why);
// `image` where it is PTX that the capability can use; "" and a reason where it is not.
std::string checked_ptx(const std::string& image, u32 capability, std::string* why);
std::string lz4_expand(const u8* data, std::size_t bytes, std::size_t expanded);
std::string zstd_expand(const u8* data, std::size_t bytes, std::size_t expanded);
}  // namespace ptxemu
