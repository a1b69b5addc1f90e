// The decoder's operands: registers, special registers, immediates, symbols and addresses become places.
#include "decoder.hpp"

#include <algorithm>
#include <cctype>

#include "fault.hpp"
#include "formats.hpp"
#include "special.hpp"

namespace ptxemu {
Decoder::Decoder(const LoadedModule& module, const std::string& kernel)
    : module_(module), program_(std::make_shared<Program>()) {
    program_->kernel = kernel;
    if (module.module->functions.count(kernel) == 0) throw Fault(kNotSupported, "no kernel " + kernel);
    const std::vector<const Function*> functions = reachable(*module.module, kernel);
    shared_ = lay_out_shared(*module.module, functions);
    program_->shared_bytes = shared_.bytes;
    program_->parameter_bytes = functions.back()->parameter_bytes;
    scratch_ = Target{allot_register(8), true};
    scratch_predicate_ = program_->predicates++;
    for (const Function* function : functions) decode_function(*function);
}

std::shared_ptr<const Program> Decoder::finish() { return program_; }

bool Decoder::has(const char* mod) const {
    return std::find(statement_->mods.begin(), statement_->mods.end(), mod) != statement_->mods.end();
}

Type Decoder::type(std::size_t index) const {
    if (types_.empty()) return Type::none;
    return types_[std::min(index, types_.size() - 1)];
}

const Operand& Decoder::operand(std::size_t index) const {
    if (index >= statement_->operands.size()) unknown("too few operands");
    return statement_->operands[index];
}

void Decoder::unknown(const std::string& why) const {
    throw Fault(kNotSupported, "unknown " + why + " in line " + std::to_string(statement_->line) + ": `" +
                                   statement_->text + "` of kernel " + program_->kernel);
}

u32 Decoder::allot_register(unsigned bytes_of_lane) {
    const u32 at = program_->register_bytes;
    program_->register_bytes += bytes_of_lane * kLanes;
    return at;
}

u64 Decoder::allot_local(u64 bytes, u64 align) {
    const u64 at = round_up(program_->local_bytes, std::max<u64>(align, 1));
    program_->local_bytes = at + bytes;
    return at;
}

// The declared type of a register in sight, nullptr where the name is none; *key tells equal names of other scopes
// apart.
const Type* Decoder::declared(const std::string& name, std::string* key) const {
    const std::size_t digits = name.find_last_not_of("0123456789") + 1;
    for (int at = statement_->scope; at >= 0; at = body_->scopes[static_cast<std::size_t>(at)].parent) {
        const Scope& scope = body_->scopes[static_cast<std::size_t>(at)];
        auto found = scope.registers.find(name);
        if (found == scope.registers.end() && digits < name.size()) {
            found = scope.registers.find(name.substr(0, digits));
            if (found != scope.registers.end() && !scope.ranged.at(found->first)) found = scope.registers.end();
        }
        if (found == scope.registers.end()) continue;
        *key = std::to_string(at) + "/" + name;
        return &found->second;
    }
    return nullptr;
}

const Variable* Decoder::variable(const std::string& name, std::string* key) const {
    for (int at = statement_->scope; at >= 0; at = body_->scopes[static_cast<std::size_t>(at)].parent) {
        const Scope& scope = body_->scopes[static_cast<std::size_t>(at)];
        const auto found = scope.variables.find(name);
        if (found == scope.variables.end()) continue;
        *key = std::to_string(at) + "/" + name;
        return &found->second;
    }
    return nullptr;
}

bool Decoder::is_predicate(const Operand& operand) const {
    std::string key;
    const Type* type = operand.kind == Operand::Kind::name ? declared(operand.name, &key) : nullptr;
    return type != nullptr && *type == Type::pred;
}

Target Decoder::any_target(const Operand& operand) {
    if (operand.kind == Operand::Kind::sink) return scratch_;
    std::string key;
    const Type* type = operand.kind == Operand::Kind::name ? declared(operand.name, &key) : nullptr;
    if (type == nullptr || *type == Type::pred || size_bytes(*type) > 8) unknown("destination");
    const auto found = frame_.registers.find(key);
    if (found != frame_.registers.end()) return found->second;
    const bool wide = size_bytes(*type) == 8;
    return frame_.registers[key] = Target{allot_register(wide ? 8 : 4), wide};
}

Target Decoder::target(const Operand& operand, unsigned bits) {
    const Target target = any_target(operand);
    if (operand.kind != Operand::Kind::sink && target.wide != (bits == 64)) unknown("width of " + operand.name);
    return target;
}

u32 Decoder::predicate_target(const Operand& operand) {
    if (operand.kind == Operand::Kind::sink) return scratch_predicate_;
    std::string key;
    const Type* type = operand.kind == Operand::Kind::name ? declared(operand.name, &key) : nullptr;
    if (type == nullptr || *type != Type::pred) unknown("predicate");
    const auto found = frame_.predicates.find(key);
    if (found != frame_.predicates.end()) return found->second;
    return frame_.predicates[key] = program_->predicates++;
}

Source Decoder::predicate(const Operand& operand) {
    Source source;
    source.negated = operand.negated;
    if (operand.kind == Operand::Kind::immediate) {
        source.constant = constant(operand.bits != 0 ? kEveryLane : 0, false);
    } else {
        source.at = predicate_target(operand);
    }
    return source;
}

const void* Decoder::constant(u64 bits, bool wide) {
    const std::pair<u64, bool> key{wide ? bits : static_cast<u32>(bits), wide};
    const auto found = program_->constant_of.find(key);
    if (found != program_->constant_of.end()) return found->second;
    program_->constants.emplace_back();
    auto& array = program_->constants.back().at;
    for (int lane = 0; lane < kLanes; ++lane) {
        if (wide) {
            array[static_cast<std::size_t>(lane)] = bits;
        } else {
            reinterpret_cast<u32*>(array.data())[lane] = static_cast<u32>(bits);
        }
    }
    return program_->constant_of[key] = array.data();
}

// The bits of an immediate for a use as `type`: PTX allows a double literal where a float is wanted.
u64 Decoder::immediate_bits(const Operand& operand, unsigned bits, Type type) const {
    if (!operand.decimal && operand.float_bits == 0) return operand.bits;
    double value = operand.fraction;
    if (operand.float_bits == 32) value = bit_cast<float>(static_cast<u32>(operand.bits));
    if (operand.float_bits == 64) value = bit_cast<double>(operand.bits);
    const bool as_double = type == Type::f64 || (!is_float(type) && bits == 64);
    if (operand.float_bits == 32 && !as_double) return operand.bits;
    if (type == Type::f16) return double_to_half(value);
    return as_double ? bit_cast<u64>(value) : bit_cast<u32>(static_cast<float>(value));
}

Source Decoder::any_source(const Operand& operand, Type type) {
    Source source;
    std::string key;
    if (operand.kind == Operand::Kind::immediate) {
        source.wide = size_bytes(type) == 8;
        source.constant = constant(immediate_bits(operand, size_bytes(type) * 8, type), source.wide);
        return source;
    }
    if (operand.kind != Operand::Kind::name) unknown("operand");
    const Type* register_type = declared(operand.name, &key);
    if (register_type != nullptr) {
        const Target target = any_target(operand);
        source.at = target.at;
        source.wide = target.wide;
        return source;
    }
    const int special = special_named(operand.name);
    if (special >= 0) {
        if (is_clock(special)) unknown("use of a clock outside of mov");
        if (specials_.count(operand.name) == 0) {
            const Target target{allot_register(12), true};
            specials_[operand.name] = target;
            program_->specials.push_back(SpecialRegister{special, target.at});
        }
        // Kept as 64-bit lanes, and behind them as 32-bit lanes.
        source.at = specials_[operand.name].at;
        source.wide = true;
        return source;
    }
    Space space = Space::generic;
    source.wide = true;
    source.constant = constant(symbol(operand.name, &space) + operand.bits, true);
    return source;
}

Source Decoder::source(const Operand& operand, unsigned bits, Type type) {
    const bool wide = bits == 64;
    if (operand.kind == Operand::Kind::immediate) {
        Source source;
        source.wide = wide;
        const u64 value = immediate_bits(operand, bits, type);
        source.constant = constant(bits < 32 ? value & ((u64{1} << bits) - 1) : value, wide);
        return source;
    }
    Source source = any_source(operand, type);
    if (source.wide == wide) return source;
    std::string key;
    if (declared(operand.name, &key) != nullptr) unknown("width of " + operand.name);
    if (special_named(operand.name) >= 0) {  // see Warp::start
        source.at += 8 * kLanes;
        source.wide = false;
        return source;
    }
    Space space = Space::generic;
    source.constant = constant(symbol(operand.name, &space) + operand.bits, wide);
    source.wide = wide;
    return source;
}

Space Decoder::space() const {
    for (const std::string& mod : statement_->mods) {
        const std::string base = mod.substr(0, mod.find("::"));
        if (base == "global") return Space::global;
        if (base == "shared") return Space::shared;
        if (base == "local") return Space::local;
        if (base == "param") return Space::param;
        if (base == "const") return Space::constant;
    }
    return Space::generic;
}

u64 Decoder::symbol(const std::string& name, Space* space) {
    std::string key;
    const Variable* inner = variable(name, &key);
    if (inner != nullptr && inner->space == Space::shared) {
        *space = Space::shared;
        return shared_.offsets.at(function_->name + "/" + key);
    }
    if (inner != nullptr) {  // .local, and .param of a call: both stand in the thread's local memory
        *space = Space::local;
        return frame_.locals.at(key);
    }
    if (frame_.locals.count(name) != 0) {  // a parameter of a device function
        *space = Space::local;
        return frame_.locals.at(name);
    }
    u64 total = 0;
    const std::vector<u64> offsets = parameter_offsets(function_->parameters, &total);
    for (std::size_t i = 0; function_->entry && i < offsets.size(); ++i) {
        if (function_->parameters[i].name != name) continue;
        *space = Space::param;
        return offsets[i];
    }
    const auto shared = shared_.offsets.find(name);
    if (shared != shared_.offsets.end()) {
        *space = Space::shared;
        return shared->second;
    }
    const auto outer = module_.addresses.find(name);
    if (outer == module_.addresses.end()) unknown("name " + name);
    *space = Space::global;
    return outer->second;
}

void Decoder::address(const Operand& operand, std::size_t slot, Space space) {
    if (operand.kind != Operand::Kind::address) unknown("address");
    instruction_.space = space;
    instruction_.offset = operand.bits;
    std::string key;
    if (!operand.name.empty() && declared(operand.name, &key) == nullptr) {
        Space found = space;
        instruction_.offset += symbol(operand.name, &found);
        if (space == Space::param || found == Space::shared || found == Space::local) instruction_.space = found;
        instruction_.in[slot].constant = constant(0, true);
        instruction_.in[slot].wide = true;
        return;
    }
    if (space == Space::param && !function_->entry) instruction_.space = Space::local;
    Operand base;
    base.kind = operand.name.empty() ? Operand::Kind::immediate : Operand::Kind::name;
    base.name = operand.name;
    instruction_.in[slot] = any_source(base, Type::u64);
}
}  // namespace ptxemu
