// What a timer runs: one call of `run` does the work n times in a row and returns when all n are done.
#pragma once
#include <cstdint>

namespace gm {

struct Work {
    void (*run)(void* context, std::int64_t n);
    void* context;
};

}  // namespace gm
