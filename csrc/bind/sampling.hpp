// The one loop of timing/sampler.hpp with NumPy arrays around it, for every clock that Python can hold.
#pragma once
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "timing/clocks.hpp"
#include "timing/sampler.hpp"

namespace gm {

namespace py = pybind11;

using Counts = py::array_t<std::int64_t, py::array::c_style | py::array::forcecast>;

// Lets Ctrl-C through between two spans: asks every 20 ms, since asking needs the GIL, which other threads may hold.
class Signals {
  public:
    void operator()() {
        const std::int64_t now = monotonic_raw_ns();
        if (now < next_) return;
        next_ = now + 20000000;
        py::gil_scoped_acquire held;
        if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    }

  private:
    std::int64_t next_ = 0;
};

inline void call_python(void* callable, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
        PyObject* result = PyObject_CallNoArgs(static_cast<PyObject*>(callable));
        if (result == nullptr) throw py::error_already_set();
        Py_DECREF(result);
    }
}

struct Spans {
    explicit Spans(const Counts& counts) : k(static_cast<std::size_t>(counts.size())), seconds(counts.size()) {
        if (counts.ndim() != 1) throw std::invalid_argument("counts must be one-dimensional");
        for (std::size_t i = 0; i < k; ++i)
            if (counts.data()[i] < 0) throw std::invalid_argument("counts must not be negative");
    }
    std::size_t k;
    py::array_t<double> seconds;
};

template <class Timer>
py::array_t<double> sample_native(Timer& timer, const Work& work, const Counts& counts, Rng& phase) {
    Spans spans(counts);
    const std::int64_t* in = counts.data();
    double* out = spans.seconds.mutable_data();
    {
        py::gil_scoped_release released;
        sample(timer, work, in, spans.k, out, phase, Signals{});
    }
    return spans.seconds;
}

}  // namespace gm
