// Binds csrc/timing.
#include <pybind11/pybind11.h>

#include "bind/work_object.hpp"

namespace py = pybind11;

namespace gm {

void register_timing(py::module_& m) {
    py::class_<WorkObject>(m, "Work", "Native work: what a timer runs n times in a row. Keeps its owner alive.")
        .def_property_readonly("owner", [](const WorkObject& self) { return self.owner; });
}

}  // namespace gm
