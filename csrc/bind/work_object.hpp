// A Work that Python can hold; `owner` is kept alive with it.
#pragma once
#include <pybind11/pybind11.h>

#include "timing/work.hpp"

namespace gm {

struct WorkObject {
    Work work;
    pybind11::object owner;
};  // bound as _core.timing.Work

}  // namespace gm
