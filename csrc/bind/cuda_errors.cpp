#include "bind/cuda_errors.hpp"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "cuda/check.hpp"
#include "cuda/nccl/api.hpp"

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

void raise(const NcclFailure& failure) {
    const py::object kind = py::module_::import("gpumicro.errors").attr("NcclError");
    PyErr_SetObject(kind.ptr(), kind(failure.call, failure.code, failure.name, failure.text, failure.detail,
                                     failure.rank, failure.timed_out)
                                    .ptr());
}

template <class Failure>
void raise_or_restore(const Failure& failure) {
    try {
        raise(failure);
    } catch (py::error_already_set& error) {
        error.restore();
    }
}

void translate(std::exception_ptr pointer) {
    if (!pointer) return;
    try {
        std::rethrow_exception(pointer);
    } catch (const CudaFailure& failure) {
        raise_or_restore(failure);
    } catch (const NcclFailure& failure) {
        raise_or_restore(failure);
    }
}

}  // namespace

void register_errors() { py::register_exception_translator(translate); }

}  // namespace gm
