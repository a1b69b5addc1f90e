// A kernel ready to run: instructions decoded once, every operand resolved to a place in the register file.
#pragma once
#include <array>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "types.hpp"

namespace ptxemu {
class Warp;
struct Instruction;
using Handler = void (*)(Warp&, const Instruction&);

// Where 32 values stand: in the register file at byte `at`, or in an array that the program owns (immediates).
// Predicates are one mask word for all lanes: `at` is their number.
struct Source {
    const void* constant = nullptr;
    u32 at = 0;
    bool negated = false;  // predicates only
    bool wide = false;     // 64-bit lanes
};

struct Target {
    u32 at = 0;
    bool wide = false;
};

enum class Control : u8 { none, branch, branch_table, call, ret, exit, block_barrier, warp_sync };

constexpr u32 kNoGuard = ~0u;

struct Instruction {
    Handler run = nullptr;
    Handler inner = nullptr;  // of a handler that wraps another one
    Control control = Control::none;
    Space space = Space::generic;
    Type type = Type::none;
    Type from = Type::none;
    u8 elements = 1;  // of a vector access
    u8 mode = 0;      // what the handler's family says
    u32 guard = kNoGuard;
    u32 guard_flip = 0;  // all ones for @!p
    Target out;
    Target out2;
    std::array<Source, 5> in;
    u64 offset = 0;  // of an address
    u64 immediate = 0;
    u32 target = 0;               // of a branch or call
    std::vector<Source> many_in;  // vectors and fragments
    std::vector<Target> many_out;
    std::vector<Source> more_in;  // a second and third vector (mma: b, c)
    std::vector<Source> last_in;
    std::vector<u32> targets;  // brx.idx
};

// What one thread's execution of an instruction counts as.
struct Cost {
    std::string name;  // "fma.f32", "ld.global", "mma.m16n8k16.f32.bf16"
    u32 flops = 0;
    u32 integer_ops = 0;
    u32 bytes = 0;
    Space space = Space::generic;
    bool load = false;
    bool store = false;
    bool atomic = false;
};

struct SpecialRegister {
    int id;
    u32 at;
};

struct alignas(64) ConstantLanes {
    std::array<u64, kLanes> at{};
};

struct Program {
    std::string kernel;  // as in the PTX, mangled
    std::vector<Instruction> code;
    std::vector<Cost> costs;         // beside code
    std::vector<std::string> texts;  // beside code: "line 12: add.f32 ..."
    u32 entry = 0;
    u32 register_bytes = 0;
    u32 predicates = 0;
    u64 local_bytes = 0;   // of one thread
    u64 shared_bytes = 0;  // static
    u64 parameter_bytes = 0;
    std::vector<SpecialRegister> specials;
    std::deque<ConstantLanes> constants;  // a deque: addresses stay
    std::map<std::pair<u64, bool>, const void*> constant_of;
};
}  // namespace ptxemu
