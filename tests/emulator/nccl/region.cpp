#include "region.hpp"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace ncclemu {
namespace {
constexpr char kMark[] = "ncclemu-";

std::string folder() {
    for (const char* const name : {"NCCLEMU_DIR", "TMPDIR"}) {
        const char* const found = std::getenv(name);
        if (found != nullptr && *found != '\0') return found;
    }
    return access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
}
}  // namespace

UniqueId make_id() {
    UniqueId id{};
    unsigned char random[16] = {};
    while (getrandom(random, sizeof random, 0) != static_cast<ssize_t>(sizeof random)) {
    }
    int at = std::snprintf(id.internal, sizeof id.internal, "%s", kMark);
    for (const unsigned char byte : random)
        at += std::snprintf(id.internal + at, sizeof id.internal - static_cast<std::size_t>(at), "%02x", byte);
    return id;
}

std::string file_of(const UniqueId& id) {
    const std::string name(id.internal, strnlen(id.internal, sizeof id.internal));
    const std::size_t mark = std::strlen(kMark);
    const bool ours = name.compare(0, mark, kMark) == 0 && name.size() == mark + 32 &&
                      name.find_first_not_of("0123456789abcdef", mark) == std::string::npos;
    return ours ? folder() + "/" + name : "";
}

Region* open_region(const std::string& file) {
    const int fd = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return nullptr;
    void* found = MAP_FAILED;
    if (ftruncate(fd, sizeof(Region)) == 0)  // zero: nobody has come, every channel is empty
        found = mmap(nullptr, sizeof(Region), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    close(fd);
    return found == MAP_FAILED ? nullptr : static_cast<Region*>(found);
}

void close_region(Region* region) { munmap(region, sizeof(Region)); }

bool is_dead(const Seat& seat) {
    const int pid = seat.pid.load();
    return pid > 0 && kill(pid, 0) != 0 && errno == ESRCH;
}

void rest(int turn) {
    if (turn < 20) {
        sched_yield();
        return;
    }
    const timespec pause{0, turn < 200 ? 20000 : 200000};
    nanosleep(&pause, nullptr);
}
}  // namespace ncclemu
