// The wmma instructions (PTX ISA, "wmma.load", "wmma.mma", "wmma.store"). Their fragments are opaque; here element
// number lane * count + i of the row-major tile is element i of the lane.
#include <cstdio>

#include "access.hpp"
#include "bind.hpp"
#include "formats.hpp"

namespace ptxemu {
namespace {
struct Tile {
    int rows = 0;
    int columns = 0;
    int each() const { return rows * columns / kLanes; }  // elements of a lane
};

struct Dimensions {
    int m = 0, n = 0, k = 0;
};

Dimensions dimensions_of(u64 packed) {
    return {static_cast<int>(packed & 255), static_cast<int>(packed >> 8 & 255), static_cast<int>(packed >> 16 & 255)};
}

int per_word(Type type) { return size_bytes(type) >= 4 ? 1 : 4 / static_cast<int>(size_bytes(type)); }

u64 element(const Warp& warp, const std::vector<Source>& fragment, int number, int each, Type type) {
    const int lane = number / each, i = number % each, per = per_word(type);
    const u64 word = warp.value(fragment[static_cast<std::size_t>(i / per)], lane);
    return per == 1 ? word : word >> (i % per * 32 / per);
}

void set_element(Warp& warp, const std::vector<Target>& fragment, int number, int each, Type type, u64 bits) {
    const int lane = number / each, i = number % each, per = per_word(type);
    const Target& out = fragment[static_cast<std::size_t>(i / per)];
    if (per == 1) {
        warp.set(out, lane, bits);
        return;
    }
    const int width = 32 / per, shift = i % per * width;
    const u32 field = (width == 16 ? 0xffffu : 0xffu) << shift;
    u32& word = warp.target<u32>(out)[lane];
    word = (word & ~field) | (static_cast<u32>(bits) << shift & field);
}

// mode: bit 0 store, bit 1 row-major; target: rows, from the bits above 16 columns.
void run_move(Warp& warp, const Instruction& instruction) {
    const Tile tile{static_cast<int>(instruction.target & 0xffff), static_cast<int>(instruction.target >> 16)};
    const u32 bytes = size_bytes(instruction.type);
    const bool store = (instruction.mode & 1) != 0, row_major = (instruction.mode & 2) != 0;
    for (int number = 0; number < tile.rows * tile.columns; ++number) {
        const int lane = number / tile.each(), row = number / tile.columns, column = number % tile.columns;
        const u64 stride = warp.value(instruction.in[1], lane);
        const u64 index = row_major ? static_cast<u64>(row) * stride + static_cast<u64>(column)
                                    : static_cast<u64>(column) * stride + static_cast<u64>(row);
        const u64 address = warp.value(instruction.in[0], lane) + instruction.offset + index * bytes;
        u8* const at = resolve_lane(warp, lane, address, instruction.space, bytes, store ? Use::store : Use::load);
        u64 bits = 0;
        if (store) {
            bits = element(warp, instruction.many_in, number, tile.each(), instruction.type);
            std::memcpy(at, &bits, bytes);
        } else {
            std::memcpy(&bits, at, bytes);
            set_element(warp, instruction.many_out, number, tile.each(), instruction.type, bits);
        }
    }
}

double open(u64 bits, Type type) {
    if (type == Type::f64) return bit_cast<double>(bits);
    if (type == Type::s32) return static_cast<double>(static_cast<s32>(bits));
    return static_cast<double>(element_to_float(static_cast<u32>(bits), type));
}

u64 close(double value, Type type) {
    if (type == Type::f64) return bit_cast<u64>(value);
    if (type == Type::s32) return static_cast<u32>(static_cast<s64>(value));
    return type == Type::f16 ? double_to_half(value) : bit_cast<u32>(static_cast<float>(value));
}

void run_mma(Warp& warp, const Instruction& instruction) {
    const Dimensions size = dimensions_of(instruction.immediate);
    const Type in = instruction.from, sum_type = static_cast<Type>(instruction.mode);
    std::vector<double> sums(static_cast<std::size_t>(size.m * size.n));
    for (int row = 0; row < size.m; ++row) {
        for (int column = 0; column < size.n; ++column) {
            const int number = row * size.n + column;
            double sum = open(element(warp, instruction.last_in, number, size.m * size.n / kLanes, sum_type), sum_type);
            for (int step = 0; step < size.k; ++step) {
                sum +=
                    open(element(warp, instruction.many_in, row * size.k + step, size.m * size.k / kLanes, in), in) *
                    open(element(warp, instruction.more_in, step * size.n + column, size.k * size.n / kLanes, in), in);
            }
            sums[static_cast<std::size_t>(number)] = sum;
        }
    }
    for (int number = 0; number < size.m * size.n; ++number) {
        set_element(warp, instruction.many_out, number, size.m * size.n / kLanes, instruction.type,
                    close(sums[static_cast<std::size_t>(number)], instruction.type));
    }
}

std::vector<Source> sources_of(Decoder& decoder, std::size_t index, Type type) {
    std::vector<Source> sources;
    for (const Operand& part : decoder.operand(index).parts) sources.push_back(decoder.any_source(part, type));
    return sources;
}

std::vector<Target> targets_of(Decoder& decoder, std::size_t index) {
    std::vector<Target> targets;
    for (const Operand& part : decoder.operand(index).parts) targets.push_back(decoder.any_target(part));
    return targets;
}

void bind_move(Decoder& decoder, bool store, const Dimensions& size) {
    Instruction& instruction = decoder.instruction();
    const std::string& matrix = decoder.statement().mods[1];
    const int rows = matrix == "b" ? size.k : size.m, columns = matrix == "a" ? size.k : size.n;
    const bool row_major = decoder.has("row");
    instruction.target = static_cast<u32>(rows) | static_cast<u32>(columns) << 16;
    instruction.mode = static_cast<u8>((store ? 1 : 0) | (row_major ? 2 : 0));
    decoder.address(decoder.operand(store ? 0 : 1), 0, decoder.space());
    if (store) instruction.many_in = sources_of(decoder, 1, Type::b32);
    if (!store) instruction.many_out = targets_of(decoder, 0);
    Operand packed;
    packed.kind = Operand::Kind::immediate;
    packed.bits = static_cast<u64>(row_major ? columns : rows);
    instruction.in[1] = decoder.operands() > 2 ? decoder.any_source(decoder.operand(2), Type::u32)
                                               : decoder.any_source(packed, Type::u32);
    instruction.run = run_move;
}
}  // namespace

bool bind_wmma(Decoder& decoder, const std::string&) {
    if (decoder.statement().op != "wmma") return false;
    Instruction& instruction = decoder.instruction();
    Dimensions size;
    for (const std::string& mod : decoder.statement().mods) {
        if (std::sscanf(mod.c_str(), "m%dn%dk%d", &size.m, &size.n, &size.k) == 3) break;
    }
    if (size.k == 0) decoder.unknown("shape");
    const std::string& what = decoder.statement().mods[0];
    if (what == "mma") {
        const std::vector<Type>& types = decoder.types();
        instruction.immediate = static_cast<u64>(size.m | size.n << 8 | size.k << 16);
        instruction.type = types.front();
        instruction.mode = static_cast<u8>(types.back());
        instruction.from = types.size() == 4 ? types[1] : Type::f16;
        instruction.many_out = targets_of(decoder, 0);
        instruction.many_in = sources_of(decoder, 1, Type::b32);
        instruction.more_in = sources_of(decoder, 2, Type::b32);
        instruction.last_in = sources_of(decoder, 3, Type::b32);
        instruction.run = run_mma;
    } else {
        bind_move(decoder, what == "store", size);
    }
    Operand all;
    all.kind = Operand::Kind::immediate;
    all.bits = kEveryLane;
    instruction.control = Control::warp_sync;
    instruction.in[4] = decoder.source(all, 32, Type::b32);
    return true;
}
}  // namespace ptxemu
