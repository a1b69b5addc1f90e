#include "cuda/loader.hpp"

#include <dlfcn.h>

#include <stdexcept>

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

}  // namespace gm
