// What NCCL_DEBUG=INFO would say, as far as readers of such logs ask.
#pragma once
#include <string>

namespace ncclemu {
struct Comm;

// To standard output or to NCCL_DEBUG_FILE (%h: the host's name, %p: the process), where NCCL_DEBUG is INFO or, for
// "WARN", WARN too.
void log_line(int device, const char* level, const std::string& text);
void log_init(const Comm& comm);
}  // namespace ncclemu
