// Libraries that are opened at run time and never linked: cuBLASLt, NCCL (Python, gpumicro.libraries, says where) and
// the driver, which the runtime has open.
#pragma once
#include <string>

namespace gm {

class Library {
  public:
    // Throws std::runtime_error with the dynamic linker's reason. Stays open for good: NVIDIA's libraries hold state of
    // the driver that does not outlive them.
    explicit Library(const std::string& path);

    const std::string& path() const { return path_; }
    void* find(const char* symbol) const noexcept;  // null where the library has it not
    // auto* create = library.get<int(void**)>("cublasLtCreate"); throws std::runtime_error where it has it not.
    template <class Function>
    Function* get(const char* symbol) const {
        return reinterpret_cast<Function*>(need(symbol));
    }

  private:
    void* need(const char* symbol) const;

    std::string path_;
    void* handle_;
};

// A function of libcuda as CUDA `since` (12000 for 12.0) has it, null where the driver has it not. Throws CudaFailure.
void* driver_function(const char* name, unsigned since);

}  // namespace gm
