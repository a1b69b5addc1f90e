// What an instruction counts as: its class, operations and bytes, from its text alone.
#pragma once
#include <vector>

#include "program.hpp"
#include "ptx.hpp"

namespace ptxemu {
Cost cost_of(const Statement& statement, const std::vector<Type>& types, const Instruction& instruction);
}  // namespace ptxemu
