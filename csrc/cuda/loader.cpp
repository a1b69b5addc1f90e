#include "cuda/loader.hpp"

#include <dlfcn.h>

#include <stdexcept>

#include "cuda/check.hpp"

namespace gm {

Library::Library(const std::string& path) : path_(path), handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) {
        const char* const reason = dlerror();
        throw std::runtime_error(reason != nullptr ? reason : path + " cannot be opened");
    }
}

void* Library::find(const char* symbol) const noexcept { return dlsym(handle_, symbol); }

void* Library::need(const char* symbol) const {
    void* const found = find(symbol);
    if (found == nullptr) throw std::runtime_error(path_ + " has no function " + symbol);
    return found;
}

void* driver_function(const char* name, unsigned since) {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    GM_CUDA(cudaGetDriverEntryPointByVersion(name, &function, since, cudaEnableDefault, &found));
#else
    (void)since;
    GM_CUDA(cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &found));
#endif
    return found == cudaDriverEntryPointSuccess ? function : nullptr;
}

}  // namespace gm
