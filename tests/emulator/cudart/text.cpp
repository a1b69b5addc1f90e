#include "text.hpp"

#include <cctype>
#include <cstring>
#include <sstream>

namespace ptxemu {
std::string trim(const std::string& text) {
    const std::size_t first = text.find_first_not_of(" \t\r\n");
    if (first == std::string::npos) return "";
    return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

std::vector<std::string> split(const std::string& text, char separator) {
    std::vector<std::string> parts;
    int depth = 0;
    std::size_t begin = 0;
    for (std::size_t i = 0; i <= text.size(); ++i) {
        const char c = i < text.size() ? text[i] : separator;
        if (std::strchr("([{", c) != nullptr) ++depth;
        if (std::strchr(")]}", c) != nullptr) --depth;
        if (i < text.size() && (c != separator || depth != 0)) continue;
        parts.push_back(trim(text.substr(begin, i - begin)));
        begin = i + 1;
    }
    if (parts.back().empty()) parts.pop_back();
    return parts;
}

std::vector<std::string> words(const std::string& text) {
    std::istringstream stream(text);
    std::vector<std::string> found;
    for (std::string word; stream >> word;) found.push_back(word);
    return found;
}

bool starts_with(const std::string& text, const char* prefix) {
    return text.compare(0, std::strlen(prefix), prefix) == 0;
}

std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
    return out + "\"";
}
}  // namespace ptxemu
