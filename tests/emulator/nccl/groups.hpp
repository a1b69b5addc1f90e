// What a thread asked for between ncclGroupStart and ncclGroupEnd, and how it is started.
#pragma once
#include <memory>
#include <vector>

#include "operations.hpp"

namespace ncclemu {
struct Launch {
    std::shared_ptr<Comm> comm;
    cudaStream_t stream;
    std::vector<Operation> operations;
};

struct Group {
    std::vector<std::shared_ptr<Comm>> inits, ends;
    std::vector<Launch> launches;
};

void open_group();
Result close_group();
// Into this thread's open group, else at once.
Result in_group(Group group);
}  // namespace ncclemu
