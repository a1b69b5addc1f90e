// What nvcc's registration code and cuLibraryLoadData hand over: fat binaries or PTX, kernels and variables, loaded on
// a device when first used there.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "decoder.hpp"

namespace ptxemu {
struct FatBinary {
    const void* wrapper = nullptr;
    std::string ptx;  // of a library, which has no wrapper
    std::unique_ptr<Module> module;
    std::string why_not;                 // there is no module
    std::map<int, LoadedModule> loaded;  // by device
    std::map<std::pair<int, std::string>, std::shared_ptr<const Program>> programs;
};

struct Kernel {
    FatBinary* binary = nullptr;
    std::string name;
    int dynamic_shared_limit = 49152;  // raised by cudaFuncSetAttribute
};

struct Symbol {
    FatBinary* binary = nullptr;
    std::string name;
    u64 bytes = 0;
};

class Modules {
  public:
    static Modules& instance();
    FatBinary* add(const void* wrapper);
    // A library's PTX; nullptr and a reason where it cannot be read.
    FatBinary* add_ptx(const std::string& ptx, std::string* why);
    const void* library_kernel(FatBinary* binary, const std::string& name);  // its handle, nullptr where there is none
    void remove(FatBinary* binary);                                          // with its kernels
    void add_kernel(FatBinary* binary, const void* host, const std::string& name);
    void add_symbol(FatBinary* binary, const void* host, const std::string& name, u64 bytes);
    Kernel* kernel(const void* host);  // nullptr where it was never registered
    Symbol* symbol(const void* host);
    // nullptr where the fat binary has no PTX for the device, or the PTX not this kernel.
    const Function* function(Kernel* kernel, std::string* why);
    u64 shared_bytes(Kernel* kernel);
    std::shared_ptr<const Program> program(Kernel* kernel, int device);  // throws Fault
    u64 address(Symbol* symbol, int device);                             // 0 where there is none

  private:
    bool read(FatBinary* binary);
    LoadedModule& load(FatBinary* binary, int device);
    std::mutex mutex_;
    std::map<const void*, Kernel> kernels_;
    std::map<const void*, Symbol> symbols_;
};
}  // namespace ptxemu
