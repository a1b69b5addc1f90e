#include "log.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "comm.hpp"
#include "faults.hpp"

namespace ncclemu {
namespace {
std::string host() {
    char name[256] = "";
    gethostname(name, sizeof name - 1);
    return name;
}

std::string file_name() {
    const char* const wanted = std::getenv("NCCL_DEBUG_FILE");
    std::string name = wanted != nullptr ? wanted : "";
    for (const auto& [mark, value] : {std::pair{"%h", host()}, std::pair{"%p", std::to_string(getpid())}}) {
        const std::size_t at = name.find(mark);
        if (at != std::string::npos) name.replace(at, 2, value);
    }
    return name;
}

bool wanted(const std::string& level) {
    const char* const text = std::getenv("NCCL_DEBUG");
    const std::string most = text != nullptr ? text : "";
    return most == "INFO" || most == "TRACE" || (most == "WARN" && level == "WARN");
}

std::string version_text() {
    const int version = library_version();
    return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
           std::to_string(version % 100);
}
}  // namespace

void log_line(int device, const char* level, const std::string& text) {
    if (!wanted(level)) return;
    static std::mutex one_at_a_time;
    const std::lock_guard<std::mutex> held(one_at_a_time);
    const std::string name = file_name();
    std::FILE* const file = name.empty() ? stdout : std::fopen(name.c_str(), "a");
    if (file == nullptr) return;
    std::fprintf(file, "%s:%d:%ld [%d] NCCL %s %s\n", host().c_str(), getpid(), syscall(SYS_gettid), device, level,
                 text.c_str());
    name.empty() ? std::fflush(file) : std::fclose(file);
}

void log_init(const Comm& comm) {
    std::string ring = "Channel 00/01 :";
    for (int rank = 0; rank < comm.size; ++rank) ring += "    " + std::to_string(rank);
    const std::string next = std::to_string((comm.rank + 1) % comm.size);
    const auto say = [&](const std::string& text) { log_line(comm.device, "INFO", text); };
    if (comm.rank == 0) say("NCCL version " + version_text() + "+emulated");
    if (comm.rank == 0) say(ring);
    say("Channel 00/0 : " + std::to_string(comm.rank) + "[" + std::to_string(comm.device) + "] -> " + next +
        " via SHM/direct/direct");
    say("Connected all rings");
    say("comm 0x1 rank " + std::to_string(comm.rank) + " nranks " + std::to_string(comm.size) + " cudaDev " +
        std::to_string(comm.device) + " - Init COMPLETE");
}
}  // namespace ncclemu
