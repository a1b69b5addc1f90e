// The little string handling that reading PTX needs.
#pragma once
#include <string>
#include <vector>

namespace ptxemu {
std::string trim(const std::string& text);
// The parts between `separator`s that stand outside of (), [] and {}, trimmed; none for blank text.
std::vector<std::string> split(const std::string& text, char separator);
std::vector<std::string> words(const std::string& text);
bool starts_with(const std::string& text, const char* prefix);
// Quoted and escaped for JSON.
std::string quoted(const std::string& text);
}  // namespace ptxemu
