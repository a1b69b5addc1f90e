// The decoder's flow: functions one behind the other, calls, branches, barriers, and the statements between them.
#include <algorithm>
#include <array>

#include "access.hpp"
#include "bind.hpp"
#include "cost.hpp"
#include "decoder.hpp"
#include "fault.hpp"

namespace ptxemu {
namespace {
// Modifiers that do not choose a handler; wrap_rounding looks at them.
bool is_rounding(const std::string& mod) {
    static const std::array<const char*, 7> names{"rn", "rz", "rm", "rp", "ftz", "approx", "full"};
    return std::find(names.begin(), names.end(), mod) != names.end();
}

constexpr std::array<bool (*)(Decoder&, const std::string&), 15> kFamilies{
    bind_integer, bind_carry,  bind_bits, bind_float,  bind_half, bind_compare, bind_convert, bind_move,
    bind_memory,  bind_atomic, bind_warp, bind_matrix, bind_wmma, bind_async,   bind_other};
}  // namespace

void Decoder::decode_function(const Function& function) {
    function_ = &function;
    body_ = &function.parsed();
    frame_ = Frame{};
    fixups_.clear();
    starts_.clear();
    Callee callee;
    callee.entry = static_cast<u32>(program_->code.size());
    program_->entry = callee.entry;
    if (!function.entry) {
        for (const Variable& parameter : function.parameters) {
            frame_.locals[parameter.name] = allot_local(parameter.bytes, parameter.align);
            callee.parameters.emplace_back(frame_.locals[parameter.name], parameter.bytes);
        }
        for (const Variable& result : function.results) {
            frame_.locals[result.name] = allot_local(result.bytes, result.align);
            callee.results.emplace_back(frame_.locals[result.name], result.bytes);
        }
    }
    callees_[function.name] = callee;
    declare_locals(function);
    for (const Statement& statement : body_->statements) {
        starts_.push_back(static_cast<u32>(program_->code.size()));
        decode_statement(statement);
    }
    starts_.push_back(static_cast<u32>(program_->code.size()));
    static const Statement end = [] {
        Statement statement;
        statement.op = "ret";
        statement.text = "ret";
        return statement;
    }();
    decode_statement(end);
    resolve_labels();
}

void Decoder::declare_locals(const Function&) {
    for (std::size_t at = 0; at < body_->scopes.size(); ++at) {
        for (const auto& [name, variable] : body_->scopes[at].variables) {
            if (variable.space == Space::shared) continue;
            frame_.locals[std::to_string(at) + "/" + name] = allot_local(variable.bytes, variable.align);
        }
    }
}

void Decoder::decode_statement(const Statement& statement) {
    statement_ = &statement;
    instruction_ = Instruction{};
    types_.clear();
    std::string key = statement.op;
    for (const std::string& mod : statement.mods) {
        const Type type = type_named(mod);
        if (type != Type::none) types_.push_back(type);
        if (!is_rounding(mod)) key += "." + mod;
    }
    instruction_.type = type();
    decode_guard();
    static const std::array<const char*, 7> control{"bra", "brx", "call", "ret", "exit", "bar", "barrier"};
    const bool flow = std::find(control.begin(), control.end(), statement.op) != control.end() && !has("warp");
    if (flow) {
        decode_control();
        return;
    }
    for (const auto family : kFamilies) {
        if (!family(*this, key)) continue;
        wrap_rounding(*this);
        emit();
        return;
    }
    unknown("instruction");
}

void Decoder::decode_guard() {
    if (statement_->guard.empty()) return;
    Operand guard;
    guard.kind = Operand::Kind::name;
    guard.name = statement_->guard;
    instruction_.guard = predicate_target(guard);
    instruction_.guard_flip = statement_->guard_negated ? kEveryLane : 0;
}

void Decoder::emit() {
    program_->code.push_back(instruction_);
    program_->costs.push_back(cost_of(*statement_, types_, instruction_));
    program_->texts.push_back("line " + std::to_string(statement_->line) + ": `" + statement_->text + "`");
}

void Decoder::decode_control() {
    const std::string& op = statement_->op;
    if (op == "call") {
        decode_call();
        return;
    }
    if (op == "ret" || op == "exit") {
        instruction_.control = op == "exit" || function_->entry ? Control::exit : Control::ret;
    } else if (op == "bra") {
        instruction_.control = Control::branch;
        fixups_.push_back({static_cast<u32>(program_->code.size()), statement_});
    } else if (op == "brx") {
        instruction_.control = Control::branch_table;
        instruction_.in[0] = source(std::size_t{0}, 32, Type::u32);
        fixups_.push_back({static_cast<u32>(program_->code.size()), statement_});
    } else if (has("cluster")) {  // every block is a cluster of its own
        instruction_.run = [](Warp&, const Instruction&) {};
    } else {
        bind_barrier(*this);
    }
    emit();
}

void Decoder::copy_local(u64 from, u64 to, u64 bytes) {
    Instruction copy;
    copy.guard = instruction_.guard;
    copy.guard_flip = instruction_.guard_flip;
    copy.offset = from;
    copy.target = static_cast<u32>(to);
    copy.immediate = bytes;
    copy.run = copy_local_memory;
    std::swap(copy, instruction_);
    emit();
    std::swap(copy, instruction_);
}

void Decoder::decode_call() {
    std::vector<const Operand*> lists;
    std::string name;
    const Operand* results = nullptr;
    for (const Operand& operand : statement_->operands) {
        const bool list = operand.kind == Operand::Kind::vector;
        if (!list && name.empty()) name = operand.name;
        if (list && name.empty()) results = &operand;
        if (list && !name.empty()) lists.push_back(&operand);
    }
    const auto found = callees_.find(name);
    if (found == callees_.end()) {  // printf, assertions, functions of other files: a fault when it is reached
        instruction_.mode = name == "__assertfail" ? 1 : 0;
        instruction_.run = call_unknown;
        emit();
        return;
    }
    const Callee& callee = found->second;
    const auto local_of = [&](const Operand& operand) {
        Space space = Space::generic;
        const u64 at = symbol(operand.name, &space);
        if (space != Space::local) unknown("argument");
        return at;
    };
    for (std::size_t i = 0; !lists.empty() && i < callee.parameters.size() && i < lists[0]->parts.size(); ++i) {
        copy_local(local_of(lists[0]->parts[i]), callee.parameters[i].first, callee.parameters[i].second);
    }
    instruction_.control = Control::call;
    instruction_.target = callee.entry;
    emit();
    for (std::size_t i = 0; results != nullptr && i < callee.results.size() && i < results->parts.size(); ++i) {
        copy_local(callee.results[i].first, local_of(results->parts[i]), callee.results[i].second);
    }
}

u32 Decoder::label(const std::string& name, int scope) const {
    for (int at = scope; at >= 0; at = body_->scopes[static_cast<std::size_t>(at)].parent) {
        const auto& labels = body_->scopes[static_cast<std::size_t>(at)].labels;
        const auto found = labels.find(name);
        if (found != labels.end()) return starts_[found->second];
    }
    unknown("label " + name);
}

void Decoder::resolve_labels() {
    for (const Fixup& fixup : fixups_) {
        statement_ = fixup.statement;
        Instruction& instruction = program_->code[fixup.pc];
        const std::string& name = statement_->operands.back().name;
        if (instruction.control == Control::branch) {
            instruction.target = label(name, statement_->scope);
            continue;
        }
        for (const Scope& scope : body_->scopes) {
            const auto table = scope.branch_targets.find(name);
            if (table == scope.branch_targets.end()) continue;
            for (const std::string& to : table->second) instruction.targets.push_back(label(to, statement_->scope));
        }
        if (instruction.targets.empty()) unknown("branch table " + name);
    }
}

std::shared_ptr<const Program> decode(const LoadedModule& module, const std::string& kernel) {
    return Decoder(module, kernel).finish();
}
}  // namespace ptxemu
