// Binds csrc/cpu.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "bind/work_object.hpp"
#include "cpu/isa.hpp"
#include "cpu/kernel.hpp"

namespace py = pybind11;
using namespace pybind11::literals;

namespace gm {
namespace {

using namespace cpu;
using Unlocked = py::call_guard<py::gil_scoped_release>;

Dtype dtype_of(const std::string& name) {
    if (name == "float64") return Dtype::float64;
    if (name == "float32") return Dtype::float32;
    throw py::value_error("dtype must be float64 or float32, not " + name);
}

Operands operands_of(const std::string& name) {
    if (name == "uniform") return Operands::uniform;
    if (name == "normal") return Operands::normal;
    if (name == "zeros") return Operands::zeros;
    throw py::value_error("operands must be uniform, normal or zeros, not " + name);
}

py::dict pages_of(const Mapping& mapping) {
    const Mapping::Pages pages = mapping.pages();
    py::dict found;
    found["advised"] = pages.advised;
    found["resident_bytes"] = pages.known ? py::object(py::int_(pages.resident_bytes)) : py::none();
    found["huge_bytes"] = pages.known ? py::object(py::int_(pages.huge_bytes)) : py::none();
    return found;
}

py::dict found_as_dict(const Finding& f) {
    return py::dict("passed"_a = f.passed, "worst"_a = f.worst, "bound"_a = f.bound, "elements"_a = f.elements,
                    "index"_a = f.index, "expected"_a = f.expected, "got"_a = f.got);
}

// A view of native memory that keeps `owner` alive.
py::array view(const std::string& dtype, const std::vector<std::int64_t>& shape, void* data, const py::object& owner) {
    return py::array(py::dtype(dtype), std::vector<py::ssize_t>(shape.begin(), shape.end()), {}, data, owner);
}

// Where the native function lies, for a disassembler: its offset in the module's file, as objdump counts.
std::uintptr_t address_of(const Kernel& kernel) { return reinterpret_cast<std::uintptr_t>(kernel.code()); }

void register_arrays(py::module_& m) {
    py::class_<Arrays, ArraysPtr>(m, "Arrays")
        .def(py::init([](const std::string& dtype, std::vector<std::int64_t> counts, std::vector<int> cpus,
                         const std::string& operands, std::uint64_t seed) {
                 const Dtype type = dtype_of(dtype);
                 const Operands what = operands_of(operands);
                 const py::gil_scoped_release unlocked;
                 return std::make_shared<Arrays>(type, std::move(counts), Team(std::move(cpus)), what, seed);
             }),
             "dtype"_a, "counts"_a, "cpus"_a, "operands"_a = "uniform", "seed"_a = 0)
        .def("view",
             [](const py::object& self, int i) {
                 auto& arrays = self.cast<Arrays&>();
                 const char* dtype = arrays.dtype() == Dtype::float64 ? "float64" : "float32";
                 return view(dtype, {arrays.elements(i)}, arrays.data(i), self);
             })
        .def("poison", &Arrays::poison, Unlocked())
        .def("pages", [](const Arrays& self) { return pages_of(self.mapping()); });
}

void register_kernel(py::module_& m) {
    py::class_<Kernel, KernelPtr>(m, "Kernel")
        .def("run", &Kernel::run, "n"_a, Unlocked())
        .def("poison", &Kernel::poison, Unlocked())
        .def("check",
             [](Kernel& self) {
                 Finding found;
                 {
                     const py::gil_scoped_release unlocked;
                     found = self.check();
                 }
                 return found_as_dict(found);
             })
        .def("outputs",
             [](const py::object& self) {
                 py::dict out;
                 for (const Output& one : self.cast<Kernel&>().outputs()) {
                     out[one.name.c_str()] = view(one.dtype, one.shape, one.data, self);
                 }
                 return out;
             })
        .def("pages",
             [](const Kernel& self) -> py::object {
                 return self.mapping() == nullptr ? py::object(py::none()) : pages_of(*self.mapping());
             })
        .def_property_readonly("recipe", &Kernel::recipe)
        .def_property_readonly("pinned", [](const Kernel& self) { return self.team().pinned(); })
        .def_property_readonly("cpus", [](const Kernel& self) { return self.team().cpus(); })
        .def_property_readonly("code_address", &address_of)
        .def_property_readonly("work",
                               [](const py::object& self) { return WorkObject{self.cast<Kernel&>().work(), self}; });
}

void register_factories(py::module_& m) {
    m.def(
        "stream",
        [](ArraysPtr arrays, const std::string& name, bool nontemporal, const std::string& isa) {
            return make_stream(std::move(arrays), name, nontemporal, table_for(isa));
        },
        "arrays"_a, "name"_a, "nontemporal"_a, "isa"_a);
    m.def(
        "chains",
        [](const std::string& dtype, bool with_adds, std::vector<int> cpus, const std::string& operands,
           std::uint64_t seed, const std::string& isa) {
            return make_chains(dtype_of(dtype), with_adds, Team(std::move(cpus)), operands_of(operands), seed,
                               table_for(isa));
        },
        "dtype"_a, "with_adds"_a, "cpus"_a, "operands"_a, "seed"_a, "isa"_a);
    m.def(
        "dot",
        [](bool bfloat16, std::vector<int> cpus, std::uint64_t seed, const std::string& isa) {
            return make_dot(bfloat16, Team(std::move(cpus)), seed, table_for(isa));
        },
        "bfloat16"_a, "cpus"_a, "seed"_a, "isa"_a);
    m.def(
        "gemm",
        [](ArraysPtr arrays, std::int64_t rows, std::int64_t columns, std::int64_t depth, std::int64_t l1,
           std::int64_t l2, std::int64_t l3, const std::string& isa) {
            return make_gemm(std::move(arrays), rows, columns, depth, {l1, l2, l3}, table_for(isa));
        },
        "arrays"_a, "m"_a, "n"_a, "k"_a, "l1"_a, "l2"_a, "l3"_a, "isa"_a);
    m.def(
        "check_gemm",
        [](const Arrays& arrays, std::int64_t rows, std::int64_t columns, std::int64_t depth, std::int64_t samples) {
            Finding found;
            {
                const py::gil_scoped_release unlocked;
                found = check_gemm(arrays, rows, columns, depth, samples);
            }
            return found_as_dict(found);
        },
        "arrays"_a, "m"_a, "n"_a, "k"_a, "samples"_a);
    m.def(
        "mixed",
        [](ArraysPtr arrays, int fma, const std::string& isa) {
            return make_mixed(std::move(arrays), fma, table_for(isa));
        },
        "arrays"_a, "fma"_a, "isa"_a);
    m.def("chase", &make_chase, "lines"_a, "line_bytes"_a, "cpu"_a, "seed"_a, Unlocked());
    m.def("launch", [](std::vector<int> cpus) { return make_launch(Team(std::move(cpus))); }, "cpus"_a);
}

}  // namespace

void register_cpu(py::module_& m) {
    register_arrays(m);
    register_kernel(m);
    register_factories(m);
#if defined(__clang__)
    m.attr("compiler") = "clang " __clang_version__;
#else
    m.attr("compiler") = "gcc " __VERSION__;
#endif
    m.def("usable_isas", &usable_isas);
    m.def("cpuid_hypervisor", &cpuid_hypervisor);
    m.def(
        "dot_recipe",
        [](const std::string& dtype, const std::string& isa) -> py::object {
            const Table& table = table_for(isa);
            const DotTable& dot = dtype == "bfloat16" ? table.bfloat16 : table.int8;
            return dot.recipe == nullptr ? py::object(py::none()) : py::str(dot.recipe);
        },
        "dtype"_a, "isa"_a);
    m.def("cpuid_caches", [] {
        py::list caches;
        for (const CpuidCache& c : cpuid_caches()) {
            caches.append(py::dict("level"_a = c.level, "size_bytes"_a = c.size_bytes, "line_bytes"_a = c.line_bytes,
                                   "shared_by"_a = c.shared_by));
        }
        return caches;
    });
    m.def(
        "clock_hz",
        [](int cpu, double span_s, int spans) {
            const Pin pin(cpu);
            return clock_hz(span_s, spans);
        },
        "cpu"_a = -1, "span_s"_a = 2e-4, "spans"_a = 20, Unlocked());
}

}  // namespace gm
