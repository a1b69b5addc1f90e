// What can go wrong while a kernel is read or run. Codes are those of cudaError_t; this part needs no CUDA header.
#pragma once
#include <stdexcept>
#include <string>

namespace ptxemu {
constexpr int kNotSupported = 801;  // cudaErrorNotSupported
constexpr int kIllegalAddress = 700;
constexpr int kAssert = 710;
constexpr int kIllegalInstruction = 715;
constexpr int kMisalignedAddress = 716;
constexpr int kLaunchFailure = 719;
constexpr int kLaunchTimeout = 702;

class Fault : public std::runtime_error {
  public:
    Fault(int code, const std::string& what) : std::runtime_error(what), code_(code) {}
    int code() const { return code_; }

  private:
    int code_;
};

// One line to where PTXEMU_LOG points (a file's name, or "stderr"); kept as the last message in any case.
void log_line(const std::string& line);
std::string last_log_line();
}  // namespace ptxemu
