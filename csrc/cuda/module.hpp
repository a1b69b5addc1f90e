// Code that is loaded at run time: machine code (cubin, fat binary) or PTX, as NVRTC makes them.
//
// By the driver's cuLibrary calls. A CUkernel is a cudaKernel_t, which the runtime takes in place of a kernel compiled
// in since CUDA 12.8 (CUDA runtime API, notes of cudaLaunchKernel): the one launcher launches both.
#pragma once
#include <string>

namespace gm {

class Module {
  public:
    // Throws CudaFailure, with the assembler's words, where the device cannot run the image; std::runtime_error where
    // the driver or the runtime is too old. `image` is copied by the driver; PTX ends with a NUL.
    Module(const std::string& image, int device);
    ~Module();
    Module(const Module&) = delete;
    Module& operator=(const Module&) = delete;

    // `name` as in the image (mangled). Valid as long as this object. Throws CudaFailure where the image has it not.
    const void* kernel(const std::string& name) const;
    int device() const { return device_; }

  private:
    int device_;
    void* library_ = nullptr;  // a CUlibrary
};

}  // namespace gm
