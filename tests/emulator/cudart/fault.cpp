#include "fault.hpp"

#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace ptxemu {
namespace {
std::mutex log_mutex;
std::string& last() {
    static std::string* line = new std::string;  // never destroyed: streams may still run at exit
    return *line;
}
}  // namespace

void log_line(const std::string& line) {
    const std::lock_guard<std::mutex> lock(log_mutex);
    last() = line;
    const char* where = std::getenv("PTXEMU_LOG");
    if (where == nullptr || *where == '\0') return;
    const bool to_stderr = std::string(where) == "stderr" || std::string(where) == "1";
    std::FILE* file = to_stderr ? stderr : std::fopen(where, "a");
    if (file == nullptr) return;
    std::fprintf(file, "ptxemu: %s\n", line.c_str());
    if (to_stderr) {
        std::fflush(file);
    } else {
        std::fclose(file);
    }
}

std::string last_log_line() {
    const std::lock_guard<std::mutex> lock(log_mutex);
    return last();
}
}  // namespace ptxemu
