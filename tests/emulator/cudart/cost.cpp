#include "cost.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <set>

namespace ptxemu {
namespace {
bool has(const Statement& statement, const char* mod) {
    return std::find(statement.mods.begin(), statement.mods.end(), mod) != statement.mods.end();
}

u32 packed(Type type) { return type == Type::f16x2 || type == Type::bf16x2 ? 2 : 1; }

void arithmetic(const Statement& statement, Type type, Cost* cost) {
    static const std::set<std::string> ones{"add", "sub", "mul", "div", "sqrt", "rcp", "rsqrt", "addc", "subc"};
    static const std::set<std::string> twos{"fma", "mad", "madc"};
    u32 operations = ones.count(statement.op) != 0 ? 1 : twos.count(statement.op) != 0 ? 2 : 0;
    if (statement.op == "dp4a") operations = 8;
    if (statement.op == "dp2a") operations = 4;
    if (operations == 0) return;
    if (is_float(type)) {
        cost->flops = operations * packed(type);
    } else {
        cost->integer_ops = operations;
    }
    cost->name = statement.op + "." + name_of(type);
}

// A warp's 2 m n k, shared out among its lanes.
void matrix(const Statement& statement, Cost* cost) {
    unsigned m = 0, n = 0, k = 0;
    std::string types;
    bool whole_numbers = false;
    for (const std::string& mod : statement.mods) {
        if (m == 0 && std::sscanf(mod.c_str(), "m%un%uk%u", &m, &n, &k) == 3) continue;
        const Type type = type_named(mod);
        if (type == Type::none) continue;
        types += std::string(".") + mod;
        whole_numbers = whole_numbers || type == Type::s32;
    }
    const u32 operations = 2 * m * n * k / kLanes;
    cost->name = statement.op + ".m" + std::to_string(m) + "n" + std::to_string(n) + "k" + std::to_string(k) + types;
    (whole_numbers ? cost->integer_ops : cost->flops) = operations;
}

void memory(const Statement& statement, Type type, const Instruction& instruction, Cost* cost) {
    cost->space = instruction.space;
    cost->name = statement.op + "." + name_of(instruction.space);
    const u32 bytes = size_bytes(type) * instruction.elements;
    cost->atomic = statement.op == "atom" || statement.op == "red";
    if (instruction.space == Space::generic || cost->atomic) return;  // counted when it is known where, or as an atomic
    cost->load = statement.op == "ld" || statement.op == "ldu";
    cost->store = statement.op == "st";
    cost->bytes = bytes;
}
}  // namespace

Cost cost_of(const Statement& statement, const std::vector<Type>& types, const Instruction& instruction) {
    static const std::set<std::string> memories{"ld", "ldu", "st", "atom", "red"};
    const Type type = types.empty() ? Type::none : types.back();
    Cost cost;
    cost.name = statement.op;
    if (memories.count(statement.op) != 0) {
        memory(statement, type, instruction, &cost);
    } else if (statement.op == "mma" || (statement.op == "wmma" && has(statement, "mma"))) {
        matrix(statement, &cost);
    } else if (statement.op == "cp" && statement.mods.size() > 1) {
        cost.name = has(statement, "ca") || has(statement, "cg") ? "cp.async" : "cp.async." + statement.mods[1];
    } else if (statement.op == "ldmatrix" || statement.op == "stmatrix") {
        cost.load = statement.op == "ldmatrix";
        cost.store = !cost.load;
        cost.space = Space::shared;
        cost.bytes = 4u * static_cast<u32>(cost.load ? instruction.many_out.size() : instruction.many_in.size());
    } else {
        arithmetic(statement, type, &cost);
    }
    return cost;
}
}  // namespace ptxemu
