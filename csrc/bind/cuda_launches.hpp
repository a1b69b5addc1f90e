// Kernels, those compiled in and those of modules loaded at run time, and their launches.
#pragma once
#include <pybind11/pybind11.h>

namespace gm {

void register_launches(pybind11::module_& m);

}  // namespace gm
