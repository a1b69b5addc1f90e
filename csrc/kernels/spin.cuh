// Kernels that a timer needs around the work it times: a gate that holds a stream until the host opens it, spans of
// known length, something that leaves no line of the work in L2, and something that keeps the SMs busy.
#pragma once
#include "ptx.cuh"

namespace gm {

// Nothing: what a launch costs.
__global__ void empty() {}

// Holds its stream until the host has stored a ticket of at least `ticket` in *opened (mapped memory), then runs on for
// `delay` cycles so that what follows begins at a random phase of the event clock. One warp, one thread of it reads.
// After timeout_ns it lets go anyway and leaves its ticket in *expired: what was timed behind it is not to be believed.
// Tickets grow, so that no flag is ever reset while an older gate may still read it.
__global__ void gate(const volatile unsigned* opened, unsigned ticket, volatile unsigned* expired,
                     unsigned long long timeout_ns, unsigned long long delay) {
    if (threadIdx.x != 0) return;
    const unsigned long long since = globaltimer_ns();
    unsigned pause = 32;  // ns; doubled up to half a microsecond: the link to the host is not to be flooded
    while (static_cast<int>(*opened - ticket) < 0) {
        if (globaltimer_ns() - since > timeout_ns) {
            *expired = ticket;
            __threadfence_system();
            break;
        }
        sleep_ns(pause);
        pause = pause < 512 ? 2 * pause : 512;
    }
    const unsigned long long begin = cycles();
    while (cycles() - begin < delay) {
    }
}

// Known truths: so many nanoseconds of the device's timer, so many cycles of the SM that it runs on.
__global__ void spin_ns(unsigned long long ns) {
    const unsigned long long begin = globaltimer_ns();
    while (globaltimer_ns() - begin < ns) {
    }
}
__global__ void spin_cycles(unsigned long long count) {
    const unsigned long long begin = cycles();
    while (cycles() - begin < count) {
    }
}

// Reads `quads` x 16 bytes, past L1. A buffer of twice the L2 leaves nothing else there, and only clean lines, so that
// the work does not pay for writing them back. No sum equals `never` as a rule; the compiler cannot know that.
__global__ void evict(const vec<unsigned, 4>* data, index quads, unsigned never, unsigned* sink) {
    unsigned sum = 0;
    const index step = static_cast<index>(gridDim.x) * blockDim.x;
    for (index i = static_cast<index>(blockIdx.x) * blockDim.x + threadIdx.x; i < quads; i += step) {
        const vec<unsigned, 4> quad = load_cg(data + i);
        sum += quad[0] ^ quad[1] ^ quad[2] ^ quad[3];
    }
    if (sum == never) *sink = sum;
}

// Keeps the SMs computing for so many cycles, so that their clock does not fall while the host prepares a sample.
__global__ void filler(unsigned long long count, float a, float* sink) {
    const unsigned long long begin = cycles();
    float x = a;
    do {
        for (int i = 0; i < 64; ++i) x = x * a + 1.0f;
    } while (cycles() - begin < count);
    if (x == 0.0f) *sink = x;  // never, for a >= 0
}

// Adds 1 to the first word of every `stride` words: each page of managed memory has to come to the device.
__global__ void touch(unsigned* words, index pages, index stride) {
    const index step = static_cast<index>(gridDim.x) * blockDim.x;
    for (index i = static_cast<index>(blockIdx.x) * blockDim.x + threadIdx.x; i < pages; i += step)
        words[i * stride] += 1;
}

}  // namespace gm

#define GM_SPIN_TABLE(X) \
    X(gm::empty)         \
    X(gm::gate)          \
    X(gm::spin_ns)       \
    X(gm::spin_cycles)   \
    X(gm::evict)         \
    X(gm::filler)        \
    X(gm::touch)
