// PTX as text says it: modules, functions, statements, operands. Nothing is resolved here; decoder.hpp does that.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "types.hpp"

namespace ptxemu {
struct Operand {
    enum class Kind { sink, name, immediate, vector, address, pair };
    Kind kind = Kind::sink;
    std::string name;      // a register, special register, label or symbol; of an address: its base, "" for none
    u64 bits = 0;          // of an immediate; of an address: its offset
    bool decimal = false;  // the immediate was written as a decimal fraction and stands in `fraction`
    double fraction = 0;
    unsigned float_bits = 0;     // 32 or 64 for 0f... and 0d... literals
    bool negated = false;        // !%p
    std::vector<Operand> parts;  // of a vector {a, b} or a list (a, b); of a pair p|q
};

struct Statement {
    std::string op;                 // "ld"
    std::vector<std::string> mods;  // "global", "v4", "f32"
    std::vector<Operand> operands;
    std::string guard;  // "%p1", "" where there is none
    bool guard_negated = false;
    int scope = 0;
    int line = 0;  // in the PTX text
    std::string text;
};

struct Variable {
    std::string name;
    Space space = Space::generic;
    Type type = Type::b8;
    u64 bytes = 0;
    u64 align = 1;
    bool external = false;
    std::string initial;  // the text after '='
};

// A { } of a function body: names declared in it hide those outside.
struct Scope {
    int parent = -1;
    std::map<std::string, Type> registers;      // "%r" for %r<100>, else the whole name
    std::map<std::string, bool> ranged;         // whether the name of `registers` is a prefix
    std::map<std::string, Variable> variables;  // .shared, .local, .param
    std::map<std::string, std::size_t> labels;  // -> index of the next statement
    std::map<std::string, std::vector<std::string>> branch_targets;
};

struct Body {
    std::vector<Statement> statements;
    std::vector<Scope> scopes;
};

struct Function {
    std::string name;
    bool entry = false;
    std::vector<Variable> parameters;
    std::vector<Variable> results;
    u64 parameter_bytes = 0;
    u32 max_threads = 1024;         // from .maxntid
    bool required_threads = false;  // .reqntid: exactly max_threads
    std::string body;
    int line = 0;
    const Body& parsed() const;  // read on first use: a module has many more functions than are run

  private:
    mutable std::shared_ptr<const Body> parsed_;
};

struct Module {
    std::map<std::string, Function> functions;
    std::map<std::string, Variable> variables;  // .global, .const, .shared at module scope
};

Module parse_module(const std::string& text);
Body parse_body(const std::string& text, int line);
Variable parse_variable(const std::string& declaration);
Operand parse_operand(const std::string& text);
// The address of each parameter: aligned offsets in declaration order; returns the bytes of all.
std::vector<u64> parameter_offsets(const std::vector<Variable>& parameters, u64* total);
// Writes the initial value of a .global or .const variable; `address_of` gives the address of a named symbol.
void write_initial(const Variable& variable, u8* where, u64 (*address_of)(const std::string&, void*), void* context);
}  // namespace ptxemu
