// What goes wrong on demand. Each is an environment variable; ranks count from 0, operations of a rank from 1 (a group
// is one).
//   NCCLEMU_VERSION=21805     the version that it says it is
//   NCCLEMU_WRONG=1:5         element 5 of each result of rank 1 is wrong
//   NCCLEMU_ABSENT=1          rank 1 never comes to the rendezvous
//   NCCLEMU_DIE=1:3           the process of rank 1 is killed by its third operation
//   NCCLEMU_STALL=1:3         the third operation of rank 1 never goes on
//   NCCLEMU_ASYNC=1:3:6       the third operation of rank 1 meets asynchronous error 6 (ncclRemoteError)
//   NCCLEMU_SILENT=1          nobody notices that another rank has died or was aborted, as over shared memory
//   NCCLEMU_DEAF=1            ncclCommAbort never comes back
#pragma once
#include <cstdlib>
#include <string>

namespace ncclemu {

inline long number_at(const char* text, int place) {
    for (; place > 0 && text != nullptr; --place) {
        while (*text != '\0' && *text != ':') ++text;
        if (*text == '\0') return -1;
        ++text;
    }
    return text == nullptr || *text == '\0' ? -1 : std::strtol(text, nullptr, 0);
}

// The number at a place of a variable whose first one is this rank; -1 else.
inline long fault(const char* name, int rank, int place) {
    const char* const text = std::getenv(name);
    return number_at(text, 0) == rank ? number_at(text, place) : -1;
}

inline bool switched_on(const char* name) {
    const char* const text = std::getenv(name);
    return text != nullptr && *text != '\0' && std::string(text) != "0";
}

inline int library_version() {
    const long wanted = number_at(std::getenv("NCCLEMU_VERSION"), 0);
    return wanted > 0 ? static_cast<int>(wanted) : 22803;
}
}  // namespace ncclemu
