// How Python lets go of what only a device at rest gives back.
#pragma once
#include <pybind11/pybind11.h>

namespace gm {

// Freeing waits for the device: other threads of Python may run meanwhile.
struct FreeWithoutGil {
    template <class Held>
    void operator()(Held* held) const {
        if (PyGILState_Check() == 0) {  // it was owned by another that goes without
            delete held;
            return;
        }
        pybind11::gil_scoped_release released;
        delete held;
    }
};

}  // namespace gm
