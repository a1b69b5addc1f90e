// Binds csrc/cpu.
#include <pybind11/pybind11.h>

namespace gm {
void register_cpu(pybind11::module_&) {}
}  // namespace gm
