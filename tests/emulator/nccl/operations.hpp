// What the functions of the API ask for, and how a rank does it: messages to and from the others, then a reduction.
#pragma once
#include <vector>

#include "comm.hpp"

namespace ncclemu {
enum class Kind { all_reduce, all_gather, reduce_scatter, broadcast, reduce, send, recv };

struct Operation {
    Kind kind;
    const u8* send;
    u8* receive;
    std::size_t count;
    int type, op, peer;  // peer: the root, too
};

// One group of one rank, to its end or to the abort.
void perform(Comm& comm, const std::vector<Operation>& operations);
}  // namespace ncclemu
