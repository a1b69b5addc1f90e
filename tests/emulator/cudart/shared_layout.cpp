// Which functions a kernel reaches and where its shared variables stand.
#include <algorithm>
#include <functional>
#include <set>

#include "decoder.hpp"
#include "fault.hpp"

namespace ptxemu {
namespace {
std::string callee_of(const Statement& call) {
    for (const Operand& operand : call.operands) {
        if (operand.kind == Operand::Kind::name) return operand.name;
    }
    return "";
}

void each_name(const Operand& operand, const std::function<void(const std::string&)>& visit) {
    if (!operand.name.empty()) visit(operand.name);
    for (const Operand& part : operand.parts) each_name(part, visit);
}

void visit_function(const Module& module, const std::string& name, std::set<std::string>* open,
                    std::vector<const Function*>* order) {
    const auto at = module.functions.find(name);
    if (at == module.functions.end()) return;  // the call's own decoding says so, if it is ever reached
    const Function* function = &at->second;
    if (std::find(order->begin(), order->end(), function) != order->end()) return;
    if (!open->insert(name).second) throw Fault(kNotSupported, "recursion is not known: " + name);
    for (const Statement& statement : function->parsed().statements) {
        if (statement.op == "call") visit_function(module, callee_of(statement), open, order);
    }
    open->erase(name);
    order->push_back(function);
}
}  // namespace

std::vector<const Function*> reachable(const Module& module, const std::string& kernel) {
    std::vector<const Function*> order;
    std::set<std::string> open;
    visit_function(module, kernel, &open, &order);
    return order;
}

SharedLayout lay_out_shared(const Module& module, const std::vector<const Function*>& functions) {
    SharedLayout layout;
    std::vector<std::string> unsized;
    const auto place = [&](const std::string& key, const Variable& variable) {
        if (layout.offsets.count(key) != 0) return;
        layout.offsets[key] = 0;
        if (variable.external || variable.bytes == 0) {
            unsized.push_back(key);
            return;
        }
        layout.bytes = round_up(layout.bytes, variable.align);
        layout.offsets[key] = layout.bytes;
        layout.bytes += variable.bytes;
    };
    for (const Function* function : functions) {
        const Body& body = function->parsed();
        for (std::size_t scope = 0; scope < body.scopes.size(); ++scope) {
            for (const auto& [name, variable] : body.scopes[scope].variables) {
                const std::string key = function->name + "/" + std::to_string(scope) + "/" + name;
                if (variable.space == Space::shared) place(key, variable);
            }
        }
        for (const Statement& statement : body.statements) {
            for (const Operand& operand : statement.operands) {
                each_name(operand, [&](const std::string& name) {
                    const auto at = module.variables.find(name);
                    if (at != module.variables.end() && at->second.space == Space::shared) place(name, at->second);
                });
            }
        }
    }
    if (!unsized.empty()) layout.bytes = round_up(layout.bytes, 16);
    for (const std::string& key : unsized) layout.offsets[key] = layout.bytes;
    return layout;
}

u64 static_shared_bytes(const Module& module, const std::string& kernel) {
    return lay_out_shared(module, reachable(module, kernel)).bytes;
}
}  // namespace ptxemu
