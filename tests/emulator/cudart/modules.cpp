#include "modules.hpp"

#include "device.hpp"
#include "fatbin.hpp"
#include "fault.hpp"
#include "memory.hpp"

namespace ptxemu {
Modules& Modules::instance() {
    static Modules* modules = new Modules;
    return *modules;
}

FatBinary* Modules::add(const void* wrapper) {
    auto* binary = new FatBinary;
    binary->wrapper = wrapper;
    return binary;
}

FatBinary* Modules::add_ptx(const std::string& ptx, std::string* why) {
    auto binary = std::make_unique<FatBinary>();
    binary->ptx = ptx;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (read(binary.get())) return binary.release();
    *why = binary->why_not;
    return nullptr;
}

const void* Modules::library_kernel(FatBinary* binary, const std::string& name) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto at = binary->module->functions.find(name);
    if (at == binary->module->functions.end() || !at->second.entry) return nullptr;
    const void* handle = &at->second;  // an address of its own, as good as a host function's
    kernels_.emplace(handle, Kernel{binary, name, kSharedDefault});
    return handle;
}

void Modules::remove(FatBinary* binary) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto at = kernels_.begin(); at != kernels_.end();)
        at = at->second.binary == binary ? kernels_.erase(at) : ++at;
    for (const auto& [device, loaded] : binary->loaded)
        for (const auto& [name, address] : loaded.addresses)
            Memory::instance().release(reinterpret_cast<void*>(address));
    delete binary;
}

void Modules::add_kernel(FatBinary* binary, const void* host, const std::string& name) {
    const std::lock_guard<std::mutex> lock(mutex_);
    kernels_[host] = Kernel{binary, name, kSharedDefault};
}

void Modules::add_symbol(FatBinary* binary, const void* host, const std::string& name, u64 bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    symbols_[host] = Symbol{binary, name, bytes};
}

Kernel* Modules::kernel(const void* host) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto at = kernels_.find(host);
    return at == kernels_.end() ? nullptr : &at->second;
}

Symbol* Modules::symbol(const void* host) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto at = symbols_.find(host);
    return at == symbols_.end() ? nullptr : &at->second;
}

bool Modules::read(FatBinary* binary) {
    if (binary->module != nullptr) return true;
    if (!binary->why_not.empty()) return false;
    const DeviceFacts& facts = device_facts();
    const auto capability = static_cast<u32>(facts.major * 10 + facts.minor);
    const std::string text = binary->wrapper != nullptr ? ptx_of(binary->wrapper, capability, &binary->why_not)
                                                        : checked_ptx(binary->ptx, capability, &binary->why_not);
    if (text.empty()) return false;
    binary->why_not.clear();
    binary->module = std::make_unique<Module>(parse_module(text));
    return true;
}

LoadedModule& Modules::load(FatBinary* binary, int device) {
    const auto found = binary->loaded.find(device);
    if (found != binary->loaded.end()) return found->second;
    LoadedModule& loaded = binary->loaded[device];
    loaded.module = binary->module.get();
    const auto stored = [](const Variable& variable) {
        return variable.space == Space::global || variable.space == Space::constant;
    };
    for (const auto& [name, variable] : binary->module->variables) {
        if (!stored(variable)) continue;
        void* memory = Memory::instance().allocate(variable.bytes, device, MemoryKind::module, ~u64{0});
        std::memset(memory, 0, variable.bytes);
        loaded.addresses[name] = reinterpret_cast<u64>(memory);
    }
    const auto address_of = [](const std::string& name, void* context) {
        return static_cast<LoadedModule*>(context)->addresses[name];
    };
    for (const auto& [name, variable] : binary->module->variables) {
        if (!stored(variable) || variable.initial.empty()) continue;
        write_initial(variable, reinterpret_cast<u8*>(loaded.addresses[name]), address_of, &loaded);
    }
    return loaded;
}

const Function* Modules::function(Kernel* kernel, std::string* why) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!read(kernel->binary)) {
        *why = kernel->binary->why_not;
        return nullptr;
    }
    const auto at = kernel->binary->module->functions.find(kernel->name);
    if (at != kernel->binary->module->functions.end()) return &at->second;
    *why = "the PTX has no kernel " + kernel->name;
    return nullptr;
}

u64 Modules::shared_bytes(Kernel* kernel) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return static_shared_bytes(*kernel->binary->module, kernel->name);
}

std::shared_ptr<const Program> Modules::program(Kernel* kernel, int device) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto& program = kernel->binary->programs[{device, kernel->name}];
    if (program == nullptr) program = decode(load(kernel->binary, device), kernel->name);
    return program;
}

u64 Modules::address(Symbol* symbol, int device) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!read(symbol->binary)) return 0;
    const LoadedModule& loaded = load(symbol->binary, device);
    const auto at = loaded.addresses.find(symbol->name);
    return at == loaded.addresses.end() ? 0 : at->second;
}
}  // namespace ptxemu
