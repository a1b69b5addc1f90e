#include "device.hpp"

#include <algorithm>
#include <cstdlib>

#include "memory.hpp"
#include "stream.hpp"

namespace ptxemu {
namespace {
u64 number_from(const char* name, u64 otherwise) {
    const char* text = std::getenv(name);
    return text == nullptr || *text == '\0' ? otherwise : std::strtoull(text, nullptr, 0);
}

DeviceFacts read_facts() {
    DeviceFacts facts;
    facts.multiprocessors = static_cast<int>(number_from("PTXEMU_SMS", 2));
    facts.l2_bytes = static_cast<int>(number_from("PTXEMU_L2", 64 << 10));
    facts.memory_bytes = number_from("PTXEMU_MEMORY", u64{256} << 20);
    facts.shared_bytes = static_cast<int>(number_from("PTXEMU_SHARED", 233472));
    const char* capability = std::getenv("PTXEMU_CC");
    const std::string text = capability == nullptr ? "9.0" : capability;
    facts.major = std::atoi(text.c_str());
    facts.minor = text.find('.') == std::string::npos ? 0 : std::atoi(text.c_str() + text.find('.') + 1);
    facts.name = "PTXEMU compute " + text + " (emulated)";
    return facts;
}

thread_local int current = 0;
}  // namespace

const DeviceFacts& device_facts() {
    static const auto* facts = new DeviceFacts(read_facts());
    return *facts;
}

int device_count() {
    static const int count = static_cast<int>(number_from("PTXEMU_DEVICES", 1));
    return count;
}

double launch_timeout_s() {
    static const char* text = std::getenv("PTXEMU_TIMEOUT");
    return text == nullptr ? 0 : std::atof(text);
}

cudaError_t Context::failure() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return failure_;
}

void Context::fail(cudaError_t code) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (failure_ == cudaSuccess) failure_ = code;
}

void Context::reset() {
    synchronize();
    Memory::instance().release_all(device);
    const std::lock_guard<std::mutex> lock(mutex_);
    failure_ = cudaSuccess;
}

void Context::synchronize() {
    std::vector<std::shared_ptr<Stream>> all;
    {
        const std::lock_guard<std::mutex> lock(order);
        all.push_back(legacy);
        for (const auto& weak : streams) {
            if (auto stream = weak.lock()) all.push_back(stream);
        }
    }
    for (const auto& stream : all) stream->finish();
}

Context& context(int device) {
    static std::mutex mutex;
    static auto* contexts = new std::map<int, Context*>;  // never destroyed: streams may still run at exit
    const std::lock_guard<std::mutex> lock(mutex);
    Context*& found = (*contexts)[device];
    if (found == nullptr) {
        found = new Context;
        found->device = device;
        found->legacy = std::make_shared<Stream>(device, cudaStreamDefault, 0, true);
    }
    return *found;
}

int current_device() { return current; }
void set_current_device(int device) { current = device; }

bool is_sticky(cudaError_t code) {
    static const int codes[] = {cudaErrorECCUncorrectable,   cudaErrorIllegalAddress,
                                cudaErrorLaunchTimeout,      cudaErrorAssert,
                                cudaErrorHardwareStackError, cudaErrorIllegalInstruction,
                                cudaErrorMisalignedAddress,  cudaErrorInvalidAddressSpace,
                                cudaErrorInvalidPc,          cudaErrorLaunchFailure,
                                cudaErrorExternalDevice,     cudaErrorUnknown};
    return std::find(std::begin(codes), std::end(codes), static_cast<int>(code)) != std::end(codes);
}
}  // namespace ptxemu
