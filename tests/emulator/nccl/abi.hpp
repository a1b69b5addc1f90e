// NCCL's types as the library's callers know them. Values are those of NCCL's documentation, "NCCL API".
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace ncclemu {
using u8 = std::uint8_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

enum Result : int {
    kSuccess = 0,
    kUnhandledCudaError = 1,
    kSystemError = 2,
    kInternalError = 3,
    kInvalidArgument = 4,
    kInvalidUsage = 5,
    kRemoteError = 6,
    kInProgress = 7,
};

enum Op : int { kSum, kProd, kMax, kMin, kAvg, kOps };

enum Type : int { kI8, kU8, kI32, kU32, kI64, kU64, kF16, kF32, kF64, kBF16, kE4M3, kE5M2, kTypes };

inline std::size_t bytes_of(int type) {
    constexpr std::size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return bytes[type];
}

struct UniqueId {
    char internal[128];
};

struct Config {  // the part that all versions since 2.14 have
    std::size_t size;
    unsigned magic, version;
    int blocking;
};
}  // namespace ncclemu
