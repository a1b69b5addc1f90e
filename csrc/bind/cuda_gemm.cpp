// Binds csrc/cuda/cublaslt: the submodule _cuda.gemm.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "bind/work_object.hpp"
#include "cuda/cublaslt.hpp"

namespace py = pybind11;
using namespace py::literals;

namespace gm {
namespace {

struct LtObject {
    std::shared_ptr<const LtApi> api;
};

// -1, where the library does not tell, becomes None.
py::object known(int value) { return value < 0 ? py::object(py::none()) : py::object(py::int_(value)); }

py::list algorithm_dicts(const LtMatmul& matmul) {
    py::list found;
    for (const LtAlgorithm& one : matmul.algorithms()) {
        found.append(py::dict("id"_a = known(one.id), "tile"_a = known(one.tile), "stages"_a = known(one.stages),
                              "split_k"_a = known(one.split_k), "cluster"_a = known(one.cluster),
                              "workspace_bytes"_a = one.workspace_bytes, "waves"_a = one.waves));
    }
    return found;
}

}  // namespace

void register_cuda_gemm(py::module_& m) {
    py::class_<LtObject>(m, "Lt", py::module_local())
        .def(py::init([](const std::string& path) {
                 const py::gil_scoped_release released;  // half a gigabyte
                 return LtObject{std::make_shared<const LtApi>(path)};
             }),
             "path"_a)
        .def_property_readonly("path", [](const LtObject& self) { return self.api->path(); })
        .def_property_readonly("version", [](const LtObject& self) { return self.api->version(); });
    py::class_<LtMatmul>(m, "LtMatmul", py::module_local())
        .def(py::init([](const LtObject& lt, std::int64_t rows, std::int64_t columns, std::int64_t depth,
                         const std::string& dtype, std::uintptr_t a, std::uintptr_t b, std::uintptr_t c, int device,
                         std::size_t workspace_bytes) {
                 const py::gil_scoped_release released;
                 return new LtMatmul(lt.api, {rows, columns, depth, dtype}, a, b, c, device, workspace_bytes);
             }),
             "lt"_a, "m"_a, "n"_a, "k"_a, "dtype"_a, "a"_a, "b"_a, "c"_a, "device"_a, "workspace_bytes"_a)
        .def_property_readonly("algorithms", &algorithm_dicts)
        .def_property_readonly("count", [](const LtMatmul& self) { return self.algorithms().size(); })
        .def_property_readonly("chosen", &LtMatmul::chosen)
        .def_property_readonly("transposed_b", &LtMatmul::transposed_b)
        .def("choose", &LtMatmul::choose, "algorithm"_a)
        .def_property_readonly("work",
                               [](const py::object& self) { return WorkObject{self.cast<LtMatmul&>().work(), self}; });
}

}  // namespace gm
