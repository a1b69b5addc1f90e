#include "bind/cuda_errors.hpp"

#include <pybind11/pybind11.h>

#include "cuda/check.hpp"

namespace py = pybind11;

namespace gm {
namespace {

void raise(const CudaFailure& failure) {
    const py::module_ errors = py::module_::import("gpumicro.errors");
    if (failure.code == cudaErrorMemoryAllocation) {
        const py::object kind = errors.attr("OutOfMemory");
        PyErr_SetObject(kind.ptr(), kind(failure.what()).ptr());
        return;
    }
    const py::object kind = errors.attr("CudaError");
    PyErr_SetObject(kind.ptr(), kind(failure.call, failure.code, failure.name, failure.text, failure.kernel,
                                     failure.launch, failure.lost)
                                    .ptr());
}

void translate(std::exception_ptr pointer) {
    if (!pointer) return;
    try {
        std::rethrow_exception(pointer);
    } catch (const CudaFailure& failure) {
        try {
            raise(failure);
        } catch (py::error_already_set& error) {
            error.restore();
        }
    }
}

}  // namespace

void register_errors() { py::register_exception_translator(translate); }

}  // namespace gm
