// The module gpumicro._core: declares its parts, binds nothing itself.
#include <pybind11/pybind11.h>

#include "cuda_why.hpp"

namespace gm {
void register_timing(pybind11::module_& m);
void register_cpu(pybind11::module_& m);
}  // namespace gm

PYBIND11_MODULE(_core, m) {
    m.doc() = "Native half of gpumicro: timers and the CPU's kernels.";
    m.attr("__version__") = GPUMICRO_VERSION;
    m.attr("cuda_why") = GPUMICRO_CUDA_WHY;
    auto timing = m.def_submodule("timing", "Clocks and the sampling loop.");
    gm::register_timing(timing);
    auto cpu = m.def_submodule("cpu", "The CPU's topology, buffers and kernels.");
    gm::register_cpu(cpu);
}
