#include "operations.hpp"

#include <signal.h>
#include <unistd.h>

#include <cstring>

#include "faults.hpp"
#include "log.hpp"
#include "reduce.hpp"

namespace ncclemu {
namespace {
struct Message {
    int peer;
    const u8* from;  // null for one that comes
    u8* to;
    std::size_t bytes;
    u64 what;  // both sides must mean the same
    std::size_t done = 0;
    bool over = false;
};

u64 label_of(const Operation& o) {
    const bool one_sided = o.kind == Kind::send || o.kind == Kind::recv;
    const auto kind = static_cast<u64>(one_sided ? Kind::send : o.kind);
    return kind | static_cast<u64>(o.type) << 8 | (one_sided ? 0 : static_cast<u64>(o.op) << 16) |
           (one_sided ? 0 : static_cast<u64>(o.peer) << 24);
}

// Moves one piece if the channel lets it. False where the other side means another message.
bool step(Comm& comm, Message& m, bool& moved) {
    const bool out = m.from != nullptr;
    Channel& channel = out ? comm.region->channels[comm.rank][m.peer] : comm.region->channels[m.peer][comm.rank];
    if ((channel.full.load(std::memory_order_acquire) != 0) == out) return true;
    if (out) {
        channel.bytes = static_cast<u32>(std::min(kPiece, m.bytes - m.done));
        channel.label = {m.what, m.bytes};
        std::memcpy(channel.data, m.from + m.done, channel.bytes);
    } else {
        if (channel.label.what != m.what || channel.label.bytes != m.bytes) return false;
        std::memcpy(m.to + m.done, channel.data, channel.bytes);
    }
    m.done += channel.bytes;
    m.over = m.done == m.bytes;
    channel.full.store(out ? 1 : 0, std::memory_order_release);
    moved = true;
    return true;
}

// All messages at once; those of one pair and direction in order. False after an abort.
bool exchange(Comm& comm, std::vector<Message>& messages) {
    for (int turn = 0;; ++turn) {
        bool moved = false, all = true;
        u32 sending = 0, receiving = 0;  // peers whose first message is not over
        for (Message& m : messages) {
            u32& waiting = m.from != nullptr ? sending : receiving;
            if (m.over || (waiting >> m.peer & 1) != 0) continue;
            if (!step(comm, m, moved)) {
                log_line(comm.device, "WARN", "another size, type or operation at rank " + std::to_string(m.peer));
                return comm.stall();  // as the real one does, if it does not write where it should not
            }
            if (m.over) continue;
            waiting |= u32{1} << m.peer;
            all = false;
            if (!moved && comm.peer_is_gone(m.peer) && comm.state == kSuccess)
                comm.fail(kRemoteError, "connection to rank " + std::to_string(m.peer) + " closed by remote peer");
        }
        if (all) return true;
        if (comm.aborted) return false;
        if (moved) turn = 0;
        if (!moved) rest(turn);
    }
}

void plant(const Comm& comm, const Operation& o, std::size_t elements) {
    const long wrong = fault("NCCLEMU_WRONG", comm.rank, 1);
    if (wrong < 0 || o.receive == nullptr || static_cast<std::size_t>(wrong) >= elements) return;
    o.receive[(static_cast<std::size_t>(wrong) + 1) * bytes_of(o.type) - 1] ^= 0x11;
}

// The messages of a collective; what is to be reduced comes to `parts`, rank after rank.
std::vector<Message> messages_of(const Comm& comm, const Operation& o, u8* parts) {
    std::vector<Message> messages;
    const std::size_t block = o.count * bytes_of(o.type);
    const bool root = comm.rank == o.peer;
    for (int peer = 0; peer < comm.size; ++peer) {
        const std::size_t at = static_cast<std::size_t>(peer) * block;
        const u8* out = o.send + (o.kind == Kind::reduce_scatter ? at : 0);
        u8* in = parts != nullptr ? parts + at : o.receive + (o.kind == Kind::all_gather ? at : 0);
        if ((o.kind == Kind::broadcast && !root) || (o.kind == Kind::reduce && peer != o.peer)) out = nullptr;
        if ((o.kind == Kind::broadcast && peer != o.peer) || (o.kind == Kind::reduce && !root)) in = nullptr;
        if (peer == comm.rank) {
            if (out != nullptr && in != nullptr && in != out) std::memmove(in, out, block);
            continue;
        }
        if (out != nullptr) messages.push_back({peer, out, nullptr, block, label_of(o)});
        if (in != nullptr) messages.push_back({peer, nullptr, in, block, label_of(o)});
    }
    return messages;
}

bool collective(Comm& comm, const Operation& o) {
    if (o.count == 0) return true;
    const bool reduces = o.kind == Kind::all_reduce || o.kind == Kind::reduce_scatter || o.kind == Kind::reduce;
    const bool takes = o.kind != Kind::reduce || comm.rank == o.peer;
    const auto ranks = static_cast<std::size_t>(comm.size);
    std::vector<u8> parts(reduces && takes ? ranks * o.count * bytes_of(o.type) : 0);
    std::vector<Message> messages = messages_of(comm, o, parts.empty() ? nullptr : parts.data());
    if (!exchange(comm, messages)) return false;
    if (!parts.empty()) reduce(o.type, o.op, parts.data(), comm.size, o.count, o.receive);
    if (takes) plant(comm, o, o.kind == Kind::all_gather ? ranks * o.count : o.count);
    return true;
}

bool one_sided(Comm& comm, const std::vector<Operation>& operations) {
    std::vector<Message> messages;
    for (const Operation& o : operations) {
        const std::size_t bytes = o.count * bytes_of(o.type);
        if (bytes != 0)
            messages.push_back({o.peer, o.kind == Kind::send ? o.send : nullptr, o.receive, bytes, label_of(o)});
    }
    if (!exchange(comm, messages)) return false;
    for (const Operation& o : operations) {
        if (o.kind == Kind::recv) plant(comm, o, o.count);
    }
    return true;
}

// Faults that befall an operation before it begins. False where it does not begin.
bool begin(Comm& comm) {
    const long number = static_cast<long>(++comm.operations);
    if (comm.aborted) return false;
    if (fault("NCCLEMU_DIE", comm.rank, 1) == number) kill(getpid(), SIGKILL);
    if (fault("NCCLEMU_STALL", comm.rank, 1) == number) return comm.stall();
    if (fault("NCCLEMU_ASYNC", comm.rank, 1) == number) {
        comm.fail(static_cast<Result>(fault("NCCLEMU_ASYNC", comm.rank, 2)), "asynchronous error on demand");
        return comm.stall();
    }
    return true;
}
}  // namespace

void perform(Comm& comm, const std::vector<Operation>& operations) {
    if (!begin(comm)) return;
    std::vector<Operation> pairs;
    for (const Operation& o : operations) {
        if (o.kind == Kind::send || o.kind == Kind::recv)
            pairs.push_back(o);
        else if (!collective(comm, o))
            return;
    }
    one_sided(comm, pairs);
}
}  // namespace ncclemu
