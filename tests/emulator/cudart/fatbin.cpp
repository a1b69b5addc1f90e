#include "fatbin.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

namespace ptxemu {
namespace {
constexpr u32 kMagic = 0xBA55ED50;
constexpr u16 kPtx = 1;
constexpr u64 kZstd = 0x8000;
constexpr u64 kLz4 = 0x2000;

struct Wrapper {
    u32 magic;
    u32 version;
    const u8* data;
    const void* unused;
};
struct Header {
    u32 magic;
    u16 version;
    u16 header_bytes;
    u64 bytes;  // behind the header
};
struct Entry {
    u16 kind;
    u16 version;
    u32 header_bytes;
    u64 bytes;  // behind the header, as stored
    u32 compressed_bytes;
    u32 options;
    u16 minor;
    u16 major;
    u32 architecture;
    u32 name;
    u32 name_bytes;
    u64 flags;
    u64 zero;
    u64 expanded_bytes;
};

std::string text_of(const Entry& entry) {
    const u8* data = reinterpret_cast<const u8*>(&entry) + entry.header_bytes;
    if ((entry.flags & kZstd) != 0) return zstd_expand(data, entry.compressed_bytes, entry.expanded_bytes);
    if ((entry.flags & kLz4) != 0) return lz4_expand(data, entry.compressed_bytes, entry.expanded_bytes);
    const char* text = reinterpret_cast<const char*>(data);
    return std::string(text, strnlen(text, entry.bytes));
}
}  // namespace

std::string lz4_expand(const u8* data, std::size_t bytes, std::size_t expanded) {
    std::string out;
    out.reserve(expanded);
    std::size_t at = 0;
    const auto length = [&](std::size_t start) {
        if (start != 15) return start;
        u8 more = 255;
        while (more == 255 && at < bytes) start += more = data[at++];
        return start;
    };
    while (at < bytes) {
        const u8 token = data[at++];
        const std::size_t literals = length(token >> 4);
        out.append(reinterpret_cast<const char*>(data) + at, literals);
        at += literals;
        if (at >= bytes || out.size() >= expanded) break;
        const std::size_t distance = data[at] | static_cast<std::size_t>(data[at + 1]) << 8;
        at += 2;
        std::size_t from = out.size() - distance;
        for (std::size_t rest = length(token & 15) + 4; rest != 0; --rest) out += out[from++];
    }
    return out;
}

// Through the system's libzstd, which is opened only here.
std::string zstd_expand(const u8* data, std::size_t bytes, std::size_t expanded) {
    static void* library = dlopen("libzstd.so.1", RTLD_NOW);
    if (library == nullptr) return "";
    using Decompress = std::size_t (*)(void*, std::size_t, const void*, std::size_t);
    const auto decompress = reinterpret_cast<Decompress>(dlsym(library, "ZSTD_decompress"));
    if (decompress == nullptr) return "";
    std::string out(expanded, '\0');
    const std::size_t size = decompress(out.data(), expanded, data, bytes);
    if (size > expanded) return "";
    out.resize(size);
    return out;
}

std::string ptx_of(const void* wrapper, u32 capability, std::string* why) {
    std::string best;
    u32 best_architecture = 0;
    *why = "the fat binary holds no PTX that compute capability " + std::to_string(capability / 10) + "." +
           std::to_string(capability % 10) + " can use";
    const auto* header = reinterpret_cast<const Header*>(static_cast<const Wrapper*>(wrapper)->data);
    if (header->magic != kMagic) return "";
    const u8* at = reinterpret_cast<const u8*>(header) + header->header_bytes;
    const u8* const end = at + header->bytes;
    while (at < end) {
        const auto& entry = *reinterpret_cast<const Entry*>(at);
        at += entry.header_bytes + entry.bytes;
        if (entry.kind != kPtx || entry.architecture > capability || entry.architecture < best_architecture) continue;
        const std::string text = text_of(entry);
        if (text.find(".version") == std::string::npos) {
            *why = "the PTX of the fat binary cannot be expanded (libzstd.so.1 missing?)";
            continue;
        }
        best = text;
        best_architecture = entry.architecture;
    }
    return best;
}

std::string checked_ptx(const std::string& image, u32 capability, std::string* why) {
    const std::size_t target = image.find(".target sm_");
    *why = "the image is no PTX: this device runs nothing else";
    if (image.find(".version") == std::string::npos || target == std::string::npos) return "";
    const u32 architecture = static_cast<u32>(std::atoi(image.c_str() + target + 11));
    *why = "the PTX is for sm_" + std::to_string(architecture) + ", the device is " + std::to_string(capability);
    return architecture > capability ? "" : image;
}
}  // namespace ptxemu
