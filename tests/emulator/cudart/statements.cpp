// Reads function bodies: scopes, labels, declarations and statements.
#include <cctype>
#include <cstdlib>

#include "fault.hpp"
#include "ptx.hpp"
#include "text.hpp"

namespace ptxemu {
namespace {
bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

Operand parse_number(const std::string& text) {
    Operand operand;
    operand.kind = Operand::Kind::immediate;
    const bool minus = text[0] == '-';
    const std::string digits = text.substr(minus ? 1 : 0);
    const char second = digits.size() > 2 && digits[0] == '0' ? static_cast<char>(std::tolower(digits[1])) : ' ';
    if (second == 'f' || second == 'd') {  // the bits of a float or double, in hexadecimal
        operand.float_bits = second == 'f' ? 32 : 64;
        operand.bits =
            std::strtoull(digits.c_str() + 2, nullptr, 16) ^ (minus ? u64{1} << (operand.float_bits - 1) : 0);
    } else if (second != 'x' && digits.find_first_of(".eE") != std::string::npos) {
        operand.decimal = true;
        operand.fraction = std::strtod(text.c_str(), nullptr);
    } else if (second == 'b') {
        operand.bits = std::strtoull(digits.c_str() + 2, nullptr, 2);
    } else {
        operand.bits = std::strtoull(digits.c_str(), nullptr, 0);
        if (minus) operand.bits = ~operand.bits + 1;
    }
    return operand;
}

bool is_number(const std::string& text) {
    return is_digit(text[0]) || (text[0] == '-' && text.size() > 1 && is_digit(text[1]));
}

Operand parse_address(const std::string& inside) {
    Operand operand;
    operand.kind = Operand::Kind::address;
    const std::size_t sign = inside.find_first_of("+-", 1);
    std::string base = trim(inside.substr(0, sign));
    if (sign != std::string::npos) {
        std::string offset = trim(inside.substr(inside[sign] == '+' ? sign + 1 : sign));
        if (offset.size() > 1 && offset[0] == '-') offset = "-" + trim(offset.substr(1));
        operand.bits = parse_number(offset).bits;
    }
    if (is_number(base)) {
        operand.bits += parse_number(base).bits;
    } else {
        operand.name = base;
    }
    return operand;
}

Operand parse_list(Operand::Kind kind, const std::string& inside, char separator) {
    Operand operand;
    operand.kind = kind;
    for (const std::string& part : split(inside, separator)) operand.parts.push_back(parse_operand(part));
    return operand;
}
}  // namespace

Operand parse_operand(const std::string& text) {
    const std::string inside = text.size() > 1 ? text.substr(1, text.size() - 2) : "";
    Operand operand;
    if (text.empty() || text == "_") return operand;
    if (text[0] == '{' || text[0] == '(') return parse_list(Operand::Kind::vector, inside, ',');
    if (text[0] == '[') return parse_address(trim(inside));
    if (text.find('|') != std::string::npos) return parse_list(Operand::Kind::pair, text, '|');
    if (is_number(text)) return parse_number(text);
    if (text[0] == '!') {
        operand = parse_operand(trim(text.substr(1)));
        operand.negated = !operand.negated;
        return operand;
    }
    operand.kind = Operand::Kind::name;
    const std::size_t plus = text.find('+');  // symbol+offset, in a mov
    operand.name = trim(text.substr(0, plus));
    if (plus != std::string::npos) operand.bits = parse_number(trim(text.substr(plus + 1))).bits;
    return operand;
}

namespace {
Statement parse_statement(const std::string& text, int scope, int line) {
    Statement statement;
    statement.scope = scope;
    statement.line = line;
    for (const std::string& word : words(text)) statement.text += (statement.text.empty() ? "" : " ") + word;
    std::string rest = text;
    if (rest[0] == '@') {
        const std::size_t blank = rest.find_first_of(" \t\r\n");
        statement.guard_negated = rest[1] == '!';
        statement.guard = rest.substr(statement.guard_negated ? 2 : 1, blank - (statement.guard_negated ? 2 : 1));
        rest = trim(rest.substr(blank));
    }
    const std::size_t blank = rest.find_first_of(" \t\r\n");
    std::string opcode = rest.substr(0, blank);
    std::size_t at = 0;
    while (true) {  // "L2::cache_hint" keeps its colons
        const std::size_t dot = opcode.find('.', at);
        const std::string part = opcode.substr(at, dot == std::string::npos ? dot : dot - at);
        if (at == 0) {
            statement.op = part;
        } else {
            statement.mods.push_back(part);
        }
        if (dot == std::string::npos) break;
        at = dot + 1;
    }
    if (blank != std::string::npos) {
        for (const std::string& part : split(rest.substr(blank), ','))
            statement.operands.push_back(parse_operand(part));
    }
    return statement;
}

class BodyReader {
  public:
    BodyReader(const std::string& text, int line) : text_(text), line_(line) { body_.scopes.emplace_back(); }

    Body read() {
        for (std::size_t i = 0; i < text_.size(); ++i) take(text_[i], i);
        return std::move(body_);
    }

  private:
    void take(char c, std::size_t i) {
        const bool blank = trim(current_).empty();
        if (c == '\n') ++line_;
        if (blank && c != '\n') begun_ = line_;
        if (depth_ == 0 && blank && (c == '{' || c == '}')) {
            c == '{' ? open() : close();
        } else if (depth_ == 0 && c == ';') {
            finish(trim(current_));
        } else if (depth_ == 0 && c == ':' && is_label(i)) {
            label_ = trim(current_);
            scope().labels[label_] = body_.statements.size();
            current_.clear();
        } else {
            if (c == '{' || c == '[' || c == '(') ++depth_;
            if (c == '}' || c == ']' || c == ')') --depth_;
            current_ += c;
        }
    }

    bool is_label(std::size_t i) const {
        const bool doubled = (i + 1 < text_.size() && text_[i + 1] == ':') || (i > 0 && text_[i - 1] == ':');
        const std::string name = trim(current_);
        return !doubled && !name.empty() && name.find_first_of(" \t\n.@") == std::string::npos;
    }

    Scope& scope() { return body_.scopes[static_cast<std::size_t>(scope_)]; }

    void open() {
        Scope inner;
        inner.parent = scope_;
        scope_ = static_cast<int>(body_.scopes.size());
        body_.scopes.push_back(inner);
        current_.clear();
    }

    void close() {
        if (scope_ > 0) scope_ = scope().parent;
        current_.clear();
    }

    void finish(const std::string& text) {
        current_.clear();
        if (text.empty()) return;
        if (text[0] != '.') {
            body_.statements.push_back(parse_statement(text, scope_, begun_));
        } else if (starts_with(text, ".reg")) {
            declare_registers(text);
        } else if (starts_with(text, ".branchtargets")) {
            for (const std::string& name : split(text.substr(14), ',')) scope().branch_targets[label_].push_back(name);
        } else if (starts_with(text, ".shared") || starts_with(text, ".local") || starts_with(text, ".param") ||
                   starts_with(text, ".extern") || starts_with(text, ".align")) {
            const Variable variable = parse_variable(text);
            scope().variables[variable.name] = variable;
        } else if (starts_with(text, ".callprototype")) {
            throw Fault(kNotSupported, "indirect calls are not known: " + text);
        }  // else .loc, .pragma and the like say nothing about what is computed
    }

    void declare_registers(const std::string& text) {  // ".reg .b32 %r<10>, x"
        const std::vector<std::string> list = words(text);
        Type type = Type::none;
        std::string names;
        for (std::size_t i = 1; i < list.size(); ++i) {
            if (list[i][0] == '.') {
                type = type_named(list[i].substr(1));
            } else {
                names += " " + list[i];
            }
        }
        for (const std::string& name : split(names, ',')) {
            const std::size_t range = name.find('<');
            scope().registers[name.substr(0, range)] = type;
            scope().ranged[name.substr(0, range)] = range != std::string::npos;
        }
    }

    const std::string& text_;
    int line_;
    int begun_ = 0;
    int scope_ = 0;
    int depth_ = 0;
    std::string current_;
    std::string label_;
    Body body_;
};
}  // namespace

Body parse_body(const std::string& text, int line) { return BodyReader(text, line).read(); }

const Body& Function::parsed() const {
    if (parsed_ == nullptr) parsed_ = std::make_shared<const Body>(parse_body(body, line));
    return *parsed_;
}
}  // namespace ptxemu
