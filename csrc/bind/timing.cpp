// Binds csrc/timing.
#include <pybind11/pybind11.h>

namespace gm {
void register_timing(pybind11::module_&) {}
}  // namespace gm
