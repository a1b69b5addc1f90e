#include "comm.hpp"

#include <unistd.h>

#include "faults.hpp"
#include "log.hpp"

namespace ncclemu {
namespace {
std::mutex error_guard;
std::string& error() {
    static auto* const text = new std::string;  // never destroyed: streams may still run at exit
    return *text;
}
}  // namespace

std::string last_error() {
    const std::lock_guard<std::mutex> held(error_guard);
    return error();
}

void set_last_error(const std::string& why) {
    const std::lock_guard<std::mutex> held(error_guard);
    error() = why;
}

Comm::~Comm() {
    if (region != nullptr) close_region(region);
}

Result Comm::fail(Result code, const std::string& why) {
    set_last_error(why);
    log_line(device, "WARN", why);
    state = code;
    return code;
}

Result Comm::come() {
    const std::string who = "rank " + std::to_string(rank);
    if (fault("NCCLEMU_ABSENT", rank, 0) >= 0) return stall(), fail(kInternalError, who + " was aborted");
    region = open_region(file);
    if (region == nullptr) return fail(kSystemError, "cannot share memory: " + file);
    int nobody = 0;
    // Another number of ranks is another clique to the real library, too: both wait in vain.
    if (!region->size.compare_exchange_strong(nobody, size) && nobody != size) stall();
    Seat& own = region->seats[rank];
    own.pid = getpid();
    own.version = library_version();
    u32 absent = kAbsent;
    if (!own.state.compare_exchange_strong(absent, kCome)) return fail(kInvalidUsage, who + " is there twice");
    for (int peer = 0, turn = 0; peer < size; ++turn) {
        if (aborted) return fail(kInternalError, who + " was aborted");
        if (region->seats[peer].state.load() != kAbsent)
            ++peer, turn = 0;
        else
            rest(turn);
    }
    unlink(file.c_str());  // everybody has it open
    for (int peer = 0; peer < size; ++peer) {
        if (region->seats[peer].version != own.version)
            return fail(kInvalidUsage, "Mismatched NCCL version detected : rank " + std::to_string(peer) + " has " +
                                           std::to_string(region->seats[peer].version) + ", " + who + " " +
                                           std::to_string(own.version));
    }
    own.state = kReady;
    log_init(*this);
    state = kSuccess;
    return kSuccess;
}

bool Comm::peer_is_gone(int peer) {
    if (peer == rank || switched_on("NCCLEMU_SILENT")) return false;
    const Seat& seat = region->seats[peer];
    return seat.state.load() == kAborted || is_dead(seat);
}

bool Comm::stall() {
    for (int turn = 0; !aborted; ++turn) rest(turn);
    return false;
}

void Comm::leave(State how) {
    if (region != nullptr) region->seats[rank].state = how;
    if (how == kAborted) unlink(file.c_str());  // where not all had come
}
}  // namespace ncclemu
