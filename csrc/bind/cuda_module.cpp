// The module gpumicro._cuda: its core; files bind/cuda_NAME.cpp add a submodule NAME each.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "bind/cuda_errors.hpp"
#include "bind/cuda_launches.hpp"
#include "bind/free_without_gil.hpp"
#include "bind/work_object.hpp"
#include "cuda/device.hpp"
#include "cuda/handles.hpp"
#include "cuda/stream.hpp"
#include "cuda/tensor_map.hpp"
#include "cuda_build.hpp"

namespace py = pybind11;
using namespace py::literals;

namespace gm {

// cuda_parts.inc is made by CMake: GM_PART(NAME) for each file bind/cuda_NAME.cpp, which defines register_cuda_NAME.
#define GM_PART(NAME) void register_cuda_##NAME(py::module_& m);
#include "cuda_parts.inc"
#undef GM_PART

namespace {

using Bytes = py::array_t<std::uint8_t>;
using Released = py::call_guard<py::gil_scoped_release>;

py::dict build() {
    py::list architectures;
    for (const auto& one : py::str(GPUMICRO_CUDA_ARCHS).attr("split")(";")) architectures.append(one);
    return py::dict("compiler"_a = GPUMICRO_CUDA_COMPILER, "host_compiler"_a = GPUMICRO_CUDA_HOST_COMPILER,
                    "architectures"_a = architectures, "cudart"_a = GPUMICRO_CUDART, "flags"_a = GPUMICRO_CUDA_FLAGS);
}

py::dict probe_dict() {
    Probe found;
    {
        py::gil_scoped_release released;  // the first call opens the driver
        found = probe();
    }
    return py::dict("count"_a = found.count, "code"_a = found.code, "error"_a = found.name, "text"_a = found.text,
                    "driver"_a = found.driver, "runtime"_a = found.runtime);
}

py::dict facts_dict(int index) {
    DeviceFacts facts;
    {
        py::gil_scoped_release released;
        facts = device_facts(index);
    }
    py::dict d;
    d["name"] = facts.name;
    d["uuid"] = facts.uuid;
    d["pci_bus_id"] = facts.pci_bus_id;
    d["compute_capability"] = std::to_string(facts.major) + "." + std::to_string(facts.minor);
    d["sm_count"] = facts.sm_count;
    d["memory_bytes"] = facts.memory_bytes;
    d["l2_bytes"] = facts.l2_bytes;
    d["shared_bytes_per_sm"] = facts.shared_bytes_per_sm;
    d["shared_bytes_per_block"] = facts.shared_bytes_per_block;
    d["max_threads_per_sm"] = facts.max_threads_per_sm;
    d["clock_hz"] = facts.clock_hz;
    d["memory_clock_hz"] = facts.memory_clock_hz;
    d["memory_bus_bits"] = facts.memory_bus_bits;
    d["ecc"] = facts.ecc;
    d["unified_addressing"] = facts.unified_addressing;
    d["managed"] = facts.managed;
    d["integrated"] = facts.integrated;
    d["copy_engines"] = facts.copy_engines;
    d["compute_mode"] = facts.compute_mode;
    d["cooperative_launch"] = facts.cooperative_launch;
    d["tcc"] = facts.tcc;
    d["mig"] = facts.mig;
    d["emulated"] = facts.emulated;
    return d;
}

// The bytes of an array of any type; it must lie in one piece.
py::buffer_info contiguous(const py::buffer& array) {
    py::buffer_info info = array.request();
    py::ssize_t step = info.itemsize;
    for (py::ssize_t i = info.ndim - 1; i >= 0; --i) {
        if (info.shape[i] != 1 && info.strides[i] != step) throw py::value_error("the array must be C-contiguous");
        step *= info.shape[i];
    }
    return info;
}

Buffer& live(Buffer& buffer, const py::buffer_info& info) {
    if (static_cast<std::size_t>(info.size * info.itemsize) > buffer.size_bytes())
        throw py::value_error("the array has " + std::to_string(info.size * info.itemsize) + " bytes, the buffer " +
                              std::to_string(buffer.size_bytes()));
    return buffer;
}

void register_buffer(py::module_& m) {
    py::class_<Buffer, std::unique_ptr<Buffer, FreeWithoutGil>>(m, "Buffer", py::module_local())
        .def(py::init([](int device, std::size_t size_bytes, const std::string& kind) {
                 const Memory memory = memory_of(kind);
                 py::gil_scoped_release released;
                 return Buffer(device, size_bytes, memory);
             }),
             "device"_a, "size_bytes"_a, "kind"_a = "device")
        .def_property_readonly("address",
                               [](const Buffer& self) { return reinterpret_cast<std::uintptr_t>(self.address()); })
        .def_property_readonly("size_bytes", &Buffer::size_bytes)
        .def(
            "upload",
            [](Buffer& self, const py::buffer& array, std::size_t offset_bytes) {
                const py::buffer_info info = contiguous(array);
                py::gil_scoped_release released;
                live(self, info).upload(info.ptr, static_cast<std::size_t>(info.size * info.itemsize), offset_bytes);
            },
            "array"_a, "offset_bytes"_a = 0)
        .def(
            "download",
            [](const Buffer& self, std::size_t offset_bytes, std::optional<std::size_t> size_bytes) {
                const std::size_t rest = self.size_bytes() - std::min(self.size_bytes(), offset_bytes);
                const std::size_t size = size_bytes.value_or(rest);
                if (offset_bytes > self.size_bytes() || size > rest)
                    throw py::value_error(std::to_string(size) + " bytes at offset " + std::to_string(offset_bytes) +
                                          " are not in a buffer of " + std::to_string(self.size_bytes()));
                Bytes bytes(static_cast<py::ssize_t>(size));
                std::uint8_t* const to = bytes.mutable_data();
                {
                    py::gil_scoped_release released;
                    self.download(to, size, offset_bytes);
                }
                return bytes;
            },
            "offset_bytes"_a = 0, "size_bytes"_a = py::none())
        .def("fill", &Buffer::fill, "byte"_a, Released())
        .def("close", &Buffer::release, Released());
}

void register_device(py::module_& m) {
    m.def("probe", &probe_dict);
    m.def("device_facts", &facts_dict, "index"_a);
    m.def(
        "free_memory",
        [](int device) {
            FreeMemory found{};
            {
                py::gil_scoped_release released;
                found = free_memory(device);
            }
            return py::make_tuple(found.free_bytes, found.total_bytes);
        },
        "device"_a);
    m.def(
        "stream", [](int device) { return reinterpret_cast<std::uintptr_t>(measuring_stream(device)); }, "device"_a,
        Released());
    m.def(
        "synchronize",
        [](int device, double limit_s) {
            const DeviceScope scope(device);
            wait(measuring_stream(device), limit_s);
        },
        "device"_a, py::kw_only(), "limit_s"_a = 120.0, Released());
    m.def("synchronize_device", &synchronize_device, "device"_a, Released());
}

void register_rest(py::module_& m) {
    m.def(
        "tensor_map",
        [](std::uintptr_t address, const std::string& dtype, const std::vector<std::uint64_t>& sizes,
           const std::vector<std::uint64_t>& strides_bytes, const std::vector<std::uint32_t>& box, int swizzle_bytes) {
            const TensorMapData bytes = tensor_map(address, dtype, sizes, strides_bytes, box, swizzle_bytes);
            return py::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        },
        "address"_a, "dtype"_a, "sizes"_a, "strides_bytes"_a, "box"_a, "swizzle_bytes"_a);
    // For the tests of error translation, which have no device to fail on.
    m.def(
        "_fail",
        [](int code, const std::string& call, const std::string& kernel, const std::string& shape) {
            note_launch(kernel, shape);
            fail(static_cast<cudaError_t>(code), call.c_str());
        },
        "code"_a, "call"_a, "kernel"_a = "", "shape"_a = "");
}

void ask_for_signals() {
    const py::gil_scoped_acquire held;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

}  // namespace
}  // namespace gm

PYBIND11_MODULE(_cuda, m) {
    m.doc() = "The CUDA half of gpumicro: kernels, launches and what the runtime says.";
    py::module_::import("gpumicro._core");  // binds Work, which launches hand out
    gm::register_errors();
    gm::between_waits = gm::ask_for_signals;
    m.attr("build") = gm::build();
    gm::register_device(m);
    gm::register_rest(m);
    gm::register_buffer(m);
    gm::register_launches(m);
#define GM_PART(NAME)                       \
    {                                       \
        auto part = m.def_submodule(#NAME); \
        gm::register_cuda_##NAME(part);     \
    }
#include "cuda_parts.inc"
#undef GM_PART
}
