// Turns the statements of a kernel and of the functions it calls into a Program.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "program.hpp"
#include "ptx.hpp"

namespace ptxemu {
// A module on one device: its text, and where its variables are there.
struct LoadedModule {
    const Module* module = nullptr;
    std::map<std::string, u64> addresses;  // of .global and .const variables
};

// Throws Fault(kNotSupported), with the instruction, its line and the kernel, for what it does not know.
std::shared_ptr<const Program> decode(const LoadedModule& module, const std::string& kernel);

// Bytes of static shared memory that a kernel and its callees use.
u64 static_shared_bytes(const Module& module, const std::string& kernel);

// Where the .shared variables of a kernel stand; those of unknown size stand together behind the others.
struct SharedLayout {
    std::map<std::string, u64> offsets;  // "function/scope/name" for inner ones, "name" for the module's
    u64 bytes = 0;
};
SharedLayout lay_out_shared(const Module& module, const std::vector<const Function*>& functions);

// A kernel and all functions that it calls, callees first. Throws Fault for recursion and unknown functions.
std::vector<const Function*> reachable(const Module& module, const std::string& kernel);

class Decoder {
  public:
    Decoder(const LoadedModule& module, const std::string& kernel);
    std::shared_ptr<const Program> finish();

    // Of the statement at hand, for the instruction families:
    const Statement& statement() const { return *statement_; }
    Instruction& instruction() { return instruction_; }
    bool has(const char* mod) const;
    Type type(std::size_t index = 0) const;  // of the types among the modifiers; the last one where there are fewer
    const std::vector<Type>& types() const { return types_; }
    std::size_t operands() const { return statement_->operands.size(); }
    const Operand& operand(std::size_t index) const;

    Source source(const Operand& operand, unsigned bits, Type type);
    Source source(std::size_t index, unsigned bits, Type type) { return source(operand(index), bits, type); }
    Source any_source(const Operand& operand, Type type);  // as wide as its register, or as `type` where it is none
    Source predicate(const Operand& operand);
    Target target(const Operand& operand, unsigned bits);
    Target any_target(const Operand& operand);
    u32 predicate_target(const Operand& operand);
    bool is_predicate(const Operand& operand) const;
    // An address: sets in[`slot`], offset and space. `kernel_space` is what the modifiers say.
    void address(const Operand& operand, std::size_t slot, Space space);
    Space space() const;                                // from the modifiers
    u64 symbol(const std::string& name, Space* space);  // its offset or address
    [[noreturn]] void unknown(const std::string& why) const;

  private:
    struct Frame {                                // of one function
        std::map<std::string, Target> registers;  // "scope/name"
        std::map<std::string, u32> predicates;
        std::map<std::string, u64> locals;  // "scope/name" -> offset in the thread's local memory
    };
    struct Callee {
        u32 entry = 0;
        std::vector<std::pair<u64, u64>> parameters;  // offset in local memory, bytes
        std::vector<std::pair<u64, u64>> results;
    };

    void decode_function(const Function& function);
    void declare_locals(const Function& function);
    void decode_statement(const Statement& statement);
    void decode_guard();
    void decode_call();
    void decode_control();
    void emit();
    void copy_local(u64 from, u64 to, u64 bytes);
    void resolve_labels();
    u32 label(const std::string& name, int scope) const;
    const Type* declared(const std::string& name, std::string* key) const;
    const Variable* variable(const std::string& name, std::string* key) const;
    const void* constant(u64 bits, bool wide);
    u64 immediate_bits(const Operand& operand, unsigned bits, Type type) const;
    u32 allot_register(unsigned bytes_of_lane);
    u64 allot_local(u64 bytes, u64 align);

    const LoadedModule& module_;
    std::shared_ptr<Program> program_;
    SharedLayout shared_;
    const Function* function_ = nullptr;
    const Body* body_ = nullptr;
    const Statement* statement_ = nullptr;
    std::vector<Type> types_;
    Instruction instruction_;
    Frame frame_;
    std::vector<u32> starts_;  // pc of each statement of the function
    std::map<std::string, Callee> callees_;
    std::map<std::string, Target> specials_;
    struct Fixup {
        u32 pc;
        const Statement* statement;
    };
    std::vector<Fixup> fixups_;
    Target scratch_;
    u32 scratch_predicate_ = 0;
};
}  // namespace ptxemu
