// Reads the outer level of a PTX module: variables and functions.
#include <algorithm>

#include "ptx.hpp"
#include "text.hpp"

namespace ptxemu {
namespace {
// Comments become blanks; line ends stay, so that a statement's line can be counted.
std::string without_comments(const std::string& text) {
    std::string out;
    out.reserve(text.size());
    for (std::size_t i = 0; i < text.size();) {
        if (text.compare(i, 2, "//") == 0) {
            while (i < text.size() && text[i] != '\n') ++i;
        } else if (text.compare(i, 2, "/*") == 0) {
            const std::size_t end = std::min(text.find("*/", i), text.size());
            for (; i < std::min(end + 2, text.size()); ++i) {
                if (text[i] == '\n') out += '\n';
            }
        } else {
            out += text[i++];
        }
    }
    return out;
}

bool is_location(const std::string& text, std::size_t at) {  // ".loc", not ".local"
    return text.compare(at, 4, ".loc") == 0 && at + 4 < text.size() && (text[at + 4] == ' ' || text[at + 4] == '\t');
}

// Blanks out the lines of debug information, which end without a semicolon.
void drop_locations(std::string* text) {
    for (std::size_t begin = 0; begin < text->size();) {
        const std::size_t end = std::min(text->find('\n', begin), text->size());
        const std::size_t word = text->find_first_not_of(" \t", begin);
        if (word < end && is_location(*text, word)) text->replace(word, end - word, end - word, ' ');
        begin = end + 1;
    }
}

std::size_t closing_brace(const std::string& text, std::size_t open) {
    int depth = 0;
    for (std::size_t i = open; i < text.size(); ++i) {
        if (text[i] == '{') ++depth;
        if (text[i] == '}' && --depth == 0) return i;
    }
    return text.size();
}

std::vector<Variable> parse_list(const std::string& text) {
    std::vector<Variable> list;
    for (const std::string& part : split(text, ',')) list.push_back(parse_variable(part));
    return list;
}

void read_limits(const std::string& head, Function* function) {
    for (const char* name : {".maxntid", ".reqntid"}) {
        const std::size_t at = head.find(name);
        if (at == std::string::npos) continue;
        u32 threads = 1;
        std::string rest = head.substr(at + 8);
        rest = rest.substr(0, rest.find('.'));
        for (const std::string& part : split(rest, ',')) threads *= static_cast<u32>(std::stoul(words(part).front()));
        function->max_threads = threads;
        function->required_threads = name[1] == 'r';
    }
}

// "(results) name (parameters) directives" of a .func, "name(parameters) directives" of an .entry.
Function parse_head(const std::string& head) {
    Function function;
    const std::size_t entry = head.find(".entry");
    function.entry = entry != std::string::npos;
    std::string rest = trim(function.entry ? head.substr(entry + 6) : head.substr(head.find(".func") + 5));
    if (!function.entry && starts_with(rest, "(")) {
        const std::size_t close = rest.find(')');
        function.results = parse_list(rest.substr(1, close - 1));
        rest = trim(rest.substr(close + 1));
    }
    const std::size_t open = rest.find('(');
    const std::vector<std::string> name = words(rest.substr(0, open));
    if (!name.empty()) function.name = name.front();
    if (open != std::string::npos) {
        const std::size_t close = rest.find(')', open);
        function.parameters = parse_list(rest.substr(open + 1, close - open - 1));
        read_limits(rest.substr(close + 1), &function);
    }
    parameter_offsets(function.parameters, &function.parameter_bytes);
    return function;
}

bool is_file_directive(const std::string& text, std::size_t at) {
    for (const char* name : {".version", ".target", ".address_size", ".file", ".pragma \"", ".loc"}) {
        if (text.compare(at, std::char_traits<char>::length(name), name) == 0) return true;
    }
    return false;
}

// Reads one item that begins at `*at` and ends with ';' or a body, and moves `*at` behind it.
void read_item(const std::string& text, std::size_t* at, Module* module) {
    const std::size_t begin = *at;
    std::size_t end = text.find_first_of(";{", begin);
    if (end == std::string::npos) {
        *at = text.size();
        return;
    }
    std::string head = text.substr(begin, end - begin);
    const bool is_function = head.find(".entry") != std::string::npos || head.find(".func") != std::string::npos;
    if (text[end] == '{' && is_function) {
        Function function = parse_head(head);
        const std::size_t close = closing_brace(text, end);
        function.body = text.substr(end + 1, close - end - 1);
        function.line = 1 + static_cast<int>(std::count(text.begin(), text.begin() + static_cast<long>(end), '\n'));
        module->functions[function.name] = function;
        *at = close + 1;
        return;
    }
    if (text[end] == '{') {  // an initial value, or a section
        const std::size_t close = closing_brace(text, end);
        const bool section = head.find(".section") != std::string::npos;
        end = section ? close : std::min(text.find(';', close), text.size());
        head = section ? "" : text.substr(begin, end - begin);
    }
    *at = end + 1;
    if (is_function || head.find(".alias") != std::string::npos) return;  // a declaration
    const Variable variable = parse_variable(head);
    const bool stored = variable.space != Space::generic && !(variable.external && variable.space != Space::shared);
    if (stored) module->variables[variable.name] = variable;
}
}  // namespace

Module parse_module(const std::string& original) {
    std::string text = without_comments(original);
    drop_locations(&text);
    Module module;
    for (std::size_t at = 0; at < text.size();) {
        if (std::isspace(static_cast<unsigned char>(text[at])) != 0) {
            ++at;
        } else if (is_file_directive(text, at)) {
            at = std::min(text.find('\n', at), text.size());
        } else {
            read_item(text, &at, &module);
        }
    }
    return module;
}
}  // namespace ptxemu
