// The memory that the ranks of a clique share, in one process or several: a file named by the id, which loses its name
// as soon as all have come. Each pair of ranks has a channel that holds one piece of a message at a time.
#pragma once
#include <atomic>
#include <string>

#include "abi.hpp"

namespace ncclemu {
constexpr int kMostRanks = 16;
constexpr std::size_t kPiece = 32 << 10;  // bytes

enum State : u32 { kAbsent, kCome, kReady, kClosed, kAborted };

struct alignas(64) Seat {
    std::atomic<u32> state;
    std::atomic<int> pid, version;
};

struct Label {  // of the message that a piece belongs to
    u64 what, bytes;
};

struct alignas(64) Channel {
    std::atomic<u32> full;
    u32 bytes;
    Label label;
    u8 data[kPiece];
};

struct Region {
    std::atomic<int> size;  // ranks
    Seat seats[kMostRanks];
    Channel channels[kMostRanks][kMostRanks];  // from, to
};

UniqueId make_id();
std::string file_of(const UniqueId& id);  // "" for what is no id
Region* open_region(const std::string& file);
void close_region(Region* region);

// Whether the process of a rank that has come is there no more.
bool is_dead(const Seat& seat);
void rest(int turn);  // between two looks at what another thread or process does
}  // namespace ncclemu
