// Warp-level matrix instructions (PTX ISA, "mma.sync", "ldmatrix", "stmatrix", "movmatrix"). With group g = lane / 4
// and t = lane % 4, element i of a fragment register stands where "Matrix Fragments for mma" says; products are summed
// in double precision and rounded once.
#include <array>
#include <cmath>
#include <cstdio>

#include "access.hpp"
#include "bind.hpp"
#include "fault.hpp"
#include "formats.hpp"

namespace ptxemu {
namespace {
struct Shape {
    int m = 0;
    int n = 0;
    int k = 0;
};

Shape shape_of(const Decoder& decoder) {
    Shape shape;
    for (const std::string& mod : decoder.statement().mods) {
        if (std::sscanf(mod.c_str(), "m%dn%dk%d", &shape.m, &shape.n, &shape.k) == 3) return shape;
    }
    decoder.unknown("shape");
}

struct Matrices {
    double a[16][64];
    double b[64][8];
    double c[16][8];
};

int per_register(Type type) {
    return type == Type::tf32 || type == Type::f32 || type == Type::f64 ? 1
           : type == Type::f16 || type == Type::bf16                    ? 2
                                                                        : 4;
}

// Register i of A holds rows g or g + 8 (i odd), and columns from (i / 2) * 4e + t * e on; B likewise along k.
void gather(Warp& warp, const Instruction& instruction, Matrices* out) {
    const Type type_a = instruction.from, type_b = static_cast<Type>(instruction.target);
    const int e = per_register(type_a), bits = e == 1 ? 0 : 32 / e;
    const auto open = [&](u64 word, int part, Type type) {
        if (type == Type::f64) return bit_cast<double>(word);
        return static_cast<double>(element_to_float(static_cast<u32>(word) >> (part * bits), type));
    };
    const bool tall = instruction.many_in.size() > 1 || type_a != Type::f64;  // 16 rows
    for (int lane = 0; lane < kLanes; ++lane) {
        const int g = lane / 4, t = lane % 4;
        for (int i = 0; i < static_cast<int>(instruction.many_in.size()); ++i) {
            const u64 word = warp.value(instruction.many_in[static_cast<std::size_t>(i)], lane);
            const int row = tall ? g + 8 * (i % 2) : g, block = tall ? i / 2 : i;
            for (int part = 0; part < e; ++part) out->a[row][block * 4 * e + t * e + part] = open(word, part, type_a);
        }
        for (int i = 0; i < static_cast<int>(instruction.more_in.size()); ++i) {
            const u64 word = warp.value(instruction.more_in[static_cast<std::size_t>(i)], lane);
            for (int part = 0; part < e; ++part) out->b[i * 4 * e + t * e + part][g] = open(word, part, type_b);
        }
    }
}

double open_sum(u64 word, Type type) {
    if (type == Type::f64) return bit_cast<double>(word);
    return type == Type::s32 ? static_cast<double>(static_cast<s32>(word))
                             : static_cast<double>(bit_cast<float>(static_cast<u32>(word)));
}

u64 close_sum(double value, Type type, bool saturate) {
    if (type == Type::f64) return bit_cast<u64>(value);
    if (type != Type::s32) return bit_cast<u32>(static_cast<float>(value));
    if (saturate) value = std::fmin(std::fmax(value, -2147483648.0), 2147483647.0);
    return static_cast<u32>(static_cast<s64>(value));
}

// C and D: register i holds row g or g + 8 (i / 2) and column 2 t + i % 2; packed halves hold both columns of a row.
void run_mma(Warp& warp, const Instruction& instruction) {
    thread_local Matrices matrices;
    gather(warp, instruction, &matrices);
    const int k = static_cast<int>(instruction.immediate & 0xff);
    const bool packed = instruction.type == Type::f16, saturate = instruction.mode != 0;
    const int rows = instruction.from == Type::f64 && instruction.many_in.size() == 1 ? 8 : 16;
    for (int lane = 0; lane < kLanes; ++lane) {
        const int g = lane / 4, t = lane % 4;
        for (std::size_t i = 0; i < instruction.last_in.size(); ++i) {
            const u64 word = warp.value(instruction.last_in[i], lane);
            const int r = static_cast<int>(i);
            if (packed) {
                for (int half = 0; half < 2; ++half)
                    matrices.c[g + 8 * r][2 * t + half] =
                        static_cast<double>(half_to_float(static_cast<u16>(word >> (16 * half))));
            } else {
                matrices.c[g + 8 * (r / 2)][2 * t + r % 2] = open_sum(word, instruction.type);
            }
        }
    }
    for (int row = 0; row < rows; ++row) {
        double* const sum = matrices.c[row];
        for (int step = 0; step < k; ++step) {
            const double a = matrices.a[row][step];
            for (int column = 0; column < 8; ++column) {  // a double FMA chain for fp64, exact products for the others
                sum[column] = instruction.from == Type::f64 ? __builtin_fma(a, matrices.b[step][column], sum[column])
                                                            : sum[column] + a * matrices.b[step][column];
            }
        }
    }
    for (int lane = 0; lane < kLanes; ++lane) {
        const int g = lane / 4, t = lane % 4;
        for (std::size_t i = 0; i < instruction.many_out.size(); ++i) {
            const int r = static_cast<int>(i);
            const double* row = matrices.c[packed ? g + 8 * r : g + 8 * (r / 2)];
            const u64 bits = packed
                                 ? double_to_half(row[2 * t]) | static_cast<u32>(double_to_half(row[2 * t + 1])) << 16
                                 : close_sum(row[2 * t + r % 2], instruction.type, saturate);
            warp.set(instruction.many_out[i], lane, bits);
        }
    }
}

bool computable(Type a) {
    return a == Type::f16 || a == Type::bf16 || a == Type::tf32 || a == Type::f64 || a == Type::s8 || a == Type::u8 ||
           a == Type::e4m3 || a == Type::e5m2;
}

void wait_for_all(Decoder& decoder) {
    Operand all;
    all.kind = Operand::Kind::immediate;
    all.bits = kEveryLane;
    decoder.instruction().control = Control::warp_sync;
    decoder.instruction().in[4] = decoder.source(all, 32, Type::b32);
}

std::vector<Source> sources_of(Decoder& decoder, std::size_t index, Type type) {
    std::vector<Source> sources;
    const Operand& operand = decoder.operand(index);
    if (operand.kind != Operand::Kind::vector) return {decoder.any_source(operand, type)};
    for (const Operand& part : operand.parts) sources.push_back(decoder.any_source(part, type));
    return sources;
}

std::vector<Target> targets_of(Decoder& decoder, std::size_t index) {
    std::vector<Target> targets;
    const Operand& operand = decoder.operand(index);
    if (operand.kind != Operand::Kind::vector) return {decoder.any_target(operand)};
    for (const Operand& part : operand.parts) targets.push_back(decoder.any_target(part));
    return targets;
}

void bind_mma(Decoder& decoder) {
    const std::vector<Type>& types = decoder.types();
    const Shape shape = shape_of(decoder);
    const bool layout = decoder.has("row") && decoder.has("col") && decoder.has("sync") && !decoder.has("sp");
    const bool known =
        types.size() == 4 && layout && shape.n == 8 && (shape.m == 16 || (shape.m == 8 && types[1] == Type::f64));
    if (!known || !computable(types[1]) || !computable(types[2]) || types[0] != types[3] || decoder.has("xor"))
        decoder.unknown("matrix shape or type");
    const int e = per_register(types[1]);
    const bool fits = (shape.k == 4 * e || shape.k == 8 * e || (types[1] == Type::f64 && shape.k == 16)) &&
                      per_register(types[2]) == e;
    if (!fits) decoder.unknown("matrix shape");
    Instruction& instruction = decoder.instruction();
    instruction.type = types[0];
    instruction.from = types[1];
    instruction.target = static_cast<u32>(types[2]);
    instruction.immediate = static_cast<u64>(shape.k);
    instruction.mode = decoder.has("satfinite") ? 1 : 0;
    const Type word = types[1] == Type::f64 ? Type::f64 : Type::b32;
    instruction.many_out = targets_of(decoder, 0);
    instruction.many_in = sources_of(decoder, 1, word);
    instruction.more_in = sources_of(decoder, 2, word);
    instruction.last_in = sources_of(decoder, 3,
                                     types[0] == Type::f64   ? Type::f64
                                     : types[0] == Type::f32 ? Type::f32
                                                             : Type::b32);
    instruction.run = run_mma;
    wait_for_all(decoder);
}

u8* row_address(Warp& warp, const Instruction& instruction, int lane) {
    const u64 address = warp.value(instruction.in[0], lane) + instruction.offset;
    if ((address & 15) != 0)
        throw Fault(kMisalignedAddress, "misaligned address of a matrix row in lane " + std::to_string(lane));
    return resolve_lane(warp, lane, address, instruction.space, 16, Use::atomic);
}

// Lane 8 i + r gives the address of row r of matrix i; each lane then holds two neighbours of row g, or, transposed, of
// column g.
void run_ldmatrix(Warp& warp, const Instruction& instruction) {
    u16 rows[4][8][8];
    const int count = static_cast<int>(instruction.many_out.size());
    for (int i = 0; i < 8 * count; ++i) std::memcpy(rows[i / 8][i % 8], row_address(warp, instruction, i), 16);
    for (int lane = 0; lane < kLanes; ++lane) {
        const int g = lane / 4, t = lane % 4;
        for (int i = 0; i < count; ++i) {
            const u16 low = instruction.mode != 0 ? rows[i][2 * t][g] : rows[i][g][2 * t];
            const u16 high = instruction.mode != 0 ? rows[i][2 * t + 1][g] : rows[i][g][2 * t + 1];
            warp.set(instruction.many_out[static_cast<std::size_t>(i)], lane, low | static_cast<u32>(high) << 16);
        }
    }
}

void run_stmatrix(Warp& warp, const Instruction& instruction) {
    const int count = static_cast<int>(instruction.many_in.size());
    u16 rows[4][8][8];
    for (int lane = 0; lane < kLanes; ++lane) {
        const int g = lane / 4, t = lane % 4;
        for (int i = 0; i < count; ++i) {
            const u64 word = warp.value(instruction.many_in[static_cast<std::size_t>(i)], lane);
            for (int half = 0; half < 2; ++half) {
                u16& place = instruction.mode != 0 ? rows[i][2 * t + half][g] : rows[i][g][2 * t + half];
                place = static_cast<u16>(word >> (16 * half));
            }
        }
    }
    for (int i = 0; i < 8 * count; ++i) std::memcpy(row_address(warp, instruction, i), rows[i / 8][i % 8], 16);
}

void bind_matrix_move(Decoder& decoder, bool load) {
    Instruction& instruction = decoder.instruction();
    if (!decoder.has("m8n8") || !decoder.has("b16")) decoder.unknown("matrix shape");
    if (load) instruction.many_out = targets_of(decoder, 0);
    if (!load) instruction.many_in = sources_of(decoder, 1, Type::b32);
    decoder.address(decoder.operand(load ? 1 : 0), 0, decoder.space());
    instruction.mode = decoder.has("trans") ? 1 : 0;
    instruction.run = load ? run_ldmatrix : run_stmatrix;
    wait_for_all(decoder);
}
}  // namespace

bool bind_matrix(Decoder& decoder, const std::string&) {
    const std::string& op = decoder.statement().op;
    if (op == "mma") {
        bind_mma(decoder);
    } else if (op == "ldmatrix" || op == "stmatrix") {
        bind_matrix_move(decoder, op == "ldmatrix");
    } else {
        return false;
    }
    return true;
}
}  // namespace ptxemu
