// Kernels by name: every family's table, as csrc/kernels writes it, becomes (text of the name, host function) pairs.
#pragma once
#include <string>
#include <vector>

namespace gm {

struct Symbol {
    const char* name;      // "gm::triad<float, 4>": the table's text, which is NVRTC's name expression too
    const void* function;  // what cudaLaunchKernel takes
};

using Table = std::vector<Symbol>;

const Table& all_symbols();  // of all families

// The function of that name. Throws std::invalid_argument for one that no table has.
const Symbol& find_symbol(const std::string& name);

}  // namespace gm

#define GM_REGISTER_SYMBOL(...) gm::Symbol{#__VA_ARGS__, reinterpret_cast<const void*>(&__VA_ARGS__)},
// In tables/FAMILY.cu: defines that family's table. The file's name must be the family's.
#define GM_REGISTER(FAMILY, TABLE)                                 \
    namespace gm {                                                 \
    Table table_##FAMILY() { return {TABLE(GM_REGISTER_SYMBOL)}; } \
    }
