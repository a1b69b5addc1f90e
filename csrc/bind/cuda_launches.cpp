#include "bind/cuda_launches.hpp"

#include <pybind11/stl.h>

#include <memory>

#include "bind/free_without_gil.hpp"
#include "bind/work_object.hpp"
#include "cuda/handles.hpp"
#include "cuda/launch.hpp"
#include "cuda/module.hpp"
#include "cuda/registry.hpp"
#include "cuda/stream.hpp"

namespace py = pybind11;
using namespace py::literals;

namespace gm {
namespace {

using Released = py::call_guard<py::gil_scoped_release>;

// A kernel of a module under the name that messages show; keeps the module loaded.
struct KernelObject {
    std::string name;
    const void* function;
    py::object module;
    Symbol symbol() const { return {name.c_str(), function}; }
};

py::dict attributes_dict(const Symbol& kernel, int device) {
    cudaFuncAttributes found{};
    {
        py::gil_scoped_release released;
        found = attributes(kernel, device);
    }
    return py::dict("registers"_a = found.numRegs, "shared_bytes"_a = found.sharedSizeBytes,
                    "local_bytes"_a = found.localSizeBytes, "ptx_version"_a = found.ptxVersion,
                    "binary_version"_a = found.binaryVersion, "max_threads"_a = found.maxThreadsPerBlock);
}

Extent extent(const std::array<unsigned, 3>& sizes) { return {sizes[0], sizes[1], sizes[2]}; }

// A launch with what must live as long as it: the buffers whose addresses are among its arguments.
struct LaunchObject {
    Launch launch;
    py::object keep;
};

void run_and_wait(LaunchObject& self, std::int64_t n, double limit_s) {
    if (n < 0) throw py::value_error("n must not be negative");
    py::gil_scoped_release released;
    const Work work = self.launch.work();
    work.run(work.context, n);
    const DeviceScope scope(self.launch.device());
    wait(measuring_stream(self.launch.device()), limit_s);
}

LaunchObject* launch_of(const Symbol& kernel, const std::array<unsigned, 3>& grid, const std::array<unsigned, 3>& block,
                        std::size_t shared_bytes, const std::vector<py::bytes>& arguments, int device,
                        py::object keep) {
    const std::vector<std::string> bytes(arguments.begin(), arguments.end());
    return new LaunchObject{{kernel, extent(grid), extent(block), shared_bytes, bytes, device}, std::move(keep)};
}

void register_launch(py::module_& m) {
    using Sizes = const std::array<unsigned, 3>&;
    using Arguments = const std::vector<py::bytes>&;
    py::class_<LaunchObject>(m, "Launch", py::module_local())
        .def(py::init([](const std::string& symbol, Sizes grid, Sizes block, std::size_t shared_bytes,
                         Arguments arguments, int device, py::object keep) {
                 return launch_of(find_symbol(symbol), grid, block, shared_bytes, arguments, device, std::move(keep));
             }),
             "kernel"_a, "grid"_a, "block"_a, "shared_bytes"_a, "arguments"_a, "device"_a, "keep"_a)
        .def(py::init([](const KernelObject& kernel, Sizes grid, Sizes block, std::size_t shared_bytes,
                         Arguments arguments, int device, const py::object& keep) {
                 return launch_of(kernel.symbol(), grid, block, shared_bytes, arguments, device,
                                  py::make_tuple(kernel.module, keep));
             }),
             "kernel"_a, "grid"_a, "block"_a, "shared_bytes"_a, "arguments"_a, "device"_a, "keep"_a)
        .def_property_readonly(
            "work", [](const py::object& self) { return WorkObject{self.cast<LaunchObject&>().launch.work(), self}; })
        .def_property_readonly("symbol", [](const LaunchObject& self) { return self.launch.symbol(); })
        .def_property_readonly("shape", [](const LaunchObject& self) { return self.launch.shape(); })
        .def("run", &run_and_wait, "n"_a = 1, py::kw_only(), "limit_s"_a = 120.0);
}

void register_module(py::module_& m) {
    py::class_<KernelObject>(m, "ModuleKernel", py::module_local())
        .def_readonly("name", &KernelObject::name)
        .def(
            "attributes", [](const KernelObject& self, int device) { return attributes_dict(self.symbol(), device); },
            "device"_a)
        .def(
            "occupancy",
            [](const KernelObject& self, int device, int block_threads, std::size_t shared_bytes) {
                return occupancy(self.symbol(), device, block_threads, shared_bytes);
            },
            "device"_a, "block_threads"_a, "shared_bytes"_a, Released());
    py::class_<Module, std::unique_ptr<Module, FreeWithoutGil>>(m, "Module", py::module_local())
        .def(py::init([](const py::bytes& image, int device) {
                 const std::string bytes = image;
                 py::gil_scoped_release released;
                 return std::unique_ptr<Module, FreeWithoutGil>(new Module(bytes, device));
             }),
             "image"_a, "device"_a)
        .def(
            "kernel",
            [](const py::object& self, const std::string& name, const std::string& shown) {
                const void* const function = self.cast<const Module&>().kernel(name);
                return KernelObject{shown.empty() ? name : shown, function, self};
            },
            "name"_a, "shown"_a = "");
}

void register_symbols(py::module_& m) {
    m.def("symbols", [] {
        std::vector<std::string> names;
        for (const Symbol& symbol : all_symbols()) names.emplace_back(symbol.name);
        return names;
    });
    m.def(
        "attributes",
        [](const std::string& symbol, int device) { return attributes_dict(find_symbol(symbol), device); }, "symbol"_a,
        "device"_a);
    m.def(
        "occupancy",
        [](const std::string& symbol, int device, int block_threads, std::size_t shared_bytes) {
            return occupancy(find_symbol(symbol), device, block_threads, shared_bytes);
        },
        "symbol"_a, "device"_a, "block_threads"_a, "shared_bytes"_a, Released());
}

}  // namespace

void register_launches(py::module_& m) {
    register_symbols(m);
    register_launch(m);
    register_module(m);
}

}  // namespace gm
