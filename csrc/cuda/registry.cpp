#include "cuda/registry.hpp"

#include <stdexcept>
#include <unordered_map>

namespace gm {

// cuda_families.inc is made by CMake: one line for each file of tables/.
#define GM_FAMILY(NAME) Table table_##NAME();
#include "cuda_families.inc"
#undef GM_FAMILY

const Table& all_symbols() {
    static const Table all = [] {
        Table joined;
        const auto add = [&joined](const Table& table) { joined.insert(joined.end(), table.begin(), table.end()); };
#define GM_FAMILY(NAME) add(table_##NAME());
#include "cuda_families.inc"
#undef GM_FAMILY
        (void)add;
        return joined;
    }();
    return all;
}

const Symbol& find_symbol(const std::string& name) {
    static const std::unordered_map<std::string, const Symbol*> by_name = [] {
        std::unordered_map<std::string, const Symbol*> found;
        for (const Symbol& symbol : all_symbols()) found.emplace(symbol.name, &symbol);
        return found;
    }();
    const auto found = by_name.find(name);
    if (found == by_name.end()) throw std::invalid_argument("no kernel is compiled under the name " + name);
    return *found->second;
}

}  // namespace gm
