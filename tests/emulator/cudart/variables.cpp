// Reads variable declarations (".visible .global .align 4 .b8 table[16] = {...}") and their initial values.
#include <cstdlib>

#include "ptx.hpp"
#include "text.hpp"

namespace ptxemu {
namespace {
Space space_named(const std::string& word) {
    if (word == ".global") return Space::global;
    if (word == ".shared") return Space::shared;
    if (word == ".local") return Space::local;
    if (word == ".param") return Space::param;
    if (word == ".const") return Space::constant;
    return Space::generic;
}

u64 elements(const std::string& dimensions) {  // "[2][8]"; "[]" has none
    u64 count = 1;
    for (std::size_t at = dimensions.find('['); at != std::string::npos; at = dimensions.find('[', at + 1)) {
        count *= std::strtoull(dimensions.c_str() + at + 1, nullptr, 0);
    }
    return count;
}

void read_attribute(const std::string& word, Variable* variable, unsigned* lanes) {
    const Space space = space_named(word);
    if (space != Space::generic) variable->space = space;
    if (word == ".extern") variable->external = true;
    if (word == ".v2") *lanes = 2;
    if (word == ".v4") *lanes = 4;
    const Type type = type_named(word.substr(1));
    if (type != Type::none) variable->type = type;
}
}  // namespace

Variable parse_variable(const std::string& declaration) {
    Variable variable;
    const std::size_t equals = declaration.find('=');
    if (equals != std::string::npos) variable.initial = trim(declaration.substr(equals + 1));
    std::string left = trim(declaration.substr(0, equals));
    const std::size_t bracket = left.find('[');
    const std::string dimensions = bracket == std::string::npos ? "" : left.substr(bracket);
    const std::vector<std::string> list = words(left.substr(0, bracket));
    if (list.empty()) return variable;
    unsigned lanes = 1;
    u64 align = 0;
    for (std::size_t i = 0; i + 1 < list.size(); ++i) {
        if (list[i] == ".align") {
            align = std::strtoull(list[++i].c_str(), nullptr, 0);
        } else if (list[i][0] == '.') {
            read_attribute(list[i], &variable, &lanes);
        }
    }
    variable.name = list.back();
    const u64 unit = u64{size_bytes(variable.type)} * lanes;
    variable.bytes = unit * elements(dimensions);
    variable.align = align != 0 ? align : unit;
    return variable;
}

std::vector<u64> parameter_offsets(const std::vector<Variable>& parameters, u64* total) {
    std::vector<u64> offsets;
    u64 at = 0;
    for (const Variable& parameter : parameters) {
        at = round_up(at, parameter.align);
        offsets.push_back(at);
        at += parameter.bytes;
    }
    *total = at;
    return offsets;
}

void write_initial(const Variable& variable, u8* where, u64 (*address_of)(const std::string&, void*), void* context) {
    std::string list = variable.initial;
    for (char& c : list) c = c == '{' || c == '}' ? ' ' : c;
    const unsigned unit = size_bytes(variable.type);
    u64 at = 0;
    for (std::string item : split(list, ',')) {
        if (starts_with(item, "generic(")) item = trim(item.substr(8, item.size() - 9));
        const Operand operand = parse_operand(item);
        const u64 value = operand.kind == Operand::Kind::name ? address_of(operand.name, context) : operand.bits;
        if (at + unit <= variable.bytes) std::memcpy(where + at, &value, unit);
        at += unit;
    }
}
}  // namespace ptxemu
