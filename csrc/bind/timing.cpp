// Binds csrc/timing.
#include <pybind11/pybind11.h>

#include <map>
#include <memory>
#include <stdexcept>
#include <string>

#include "bind/sampling.hpp"
#include "bind/work_object.hpp"
#include "timing/clocks.hpp"
#include "timing/fake_timer.hpp"

namespace py = pybind11;
using namespace py::literals;

namespace gm {
namespace {

// A host clock with the generator that sets the phase of its spans.
template <class Timer>
struct HostClock {
    Timer timer;
    Rng phase{1};

    py::array_t<double> sample(const py::object& work, const Counts& counts) {
        if (work.is_none()) return sample_native(timer, empty_work(), counts, phase);
        if (py::isinstance<WorkObject>(work))
            return sample_native(timer, work.cast<const WorkObject&>().work, counts, phase);
        Spans spans(counts);  // a Python callable: the same loop, with the GIL held
        gm::sample(timer, Work{call_python, work.ptr()}, counts.data(), spans.k, spans.seconds.mutable_data(), phase,
                   Signals{});
        return spans.seconds;
    }
};

template <class Timer, class Make>
void register_host_clock(py::module_& m, const char* name, Make make) {
    using Clock = HostClock<Timer>;
    py::class_<Clock>(m, name)
        .def(py::init([make] { return Clock{make()}; }))
        .def("now", [](const Clock& self) { return self.timer.now(); })
        .def("sample", &Clock::sample, "work"_a.none(true), "counts"_a);
}

// --- works --------------------------------------------------------------------------------------------------------

struct NativeCall {
    void* function;
    void* context;
};

void call_plain(void* call, std::int64_t n) {
    const auto function = reinterpret_cast<void (*)()>(static_cast<NativeCall*>(call)->function);
    for (std::int64_t i = 0; i < n; ++i) function();
}

void call_with_context(void* call, std::int64_t n) {
    const NativeCall it = *static_cast<NativeCall*>(call);
    const auto function = reinterpret_cast<void (*)(void*)>(it.function);
    for (std::int64_t i = 0; i < n; ++i) function(it.context);
}

WorkObject native_work(std::uintptr_t address, const std::string& signature, std::uintptr_t context, py::object owner) {
    auto* function = reinterpret_cast<void*>(address);
    auto* argument = reinterpret_cast<void*>(context);
    if (function == nullptr) throw std::invalid_argument("the function pointer is null");
    if (signature == "void (void *, int64_t)")
        return {{reinterpret_cast<void (*)(void*, std::int64_t)>(function), argument}, std::move(owner)};
    const bool plain = signature == "void (void)";
    if (!plain && signature != "void (void *)") throw std::invalid_argument("unknown signature '" + signature + "'");
    auto call = std::make_unique<NativeCall>(NativeCall{function, argument});
    py::capsule kept(call.get(), [](void* p) { delete static_cast<NativeCall*>(p); });
    const Work work{plain ? call_plain : call_with_context, call.release()};
    return {work, py::make_tuple(kept, std::move(owner))};
}

WorkObject capsule_work(const py::object& capsule) {
    const char* name = PyCapsule_GetName(capsule.ptr());
    if (PyErr_Occurred()) throw py::error_already_set();
    void* function = PyCapsule_GetPointer(capsule.ptr(), name);
    if (function == nullptr) throw py::error_already_set();
    void* context = PyCapsule_GetContext(capsule.ptr());
    return native_work(reinterpret_cast<std::uintptr_t>(function), name ? name : "",
                       reinterpret_cast<std::uintptr_t>(context), capsule);
}

// --- the fake -----------------------------------------------------------------------------------------------------

struct FakeWork {
    FakeTruth truth;
    double z = 0.0;
};

Law law_of(const std::string& name) {
    static const std::map<std::string, Law> laws{{"normal", Law::normal},
                                                 {"lognormal", Law::lognormal},
                                                 {"exponential", Law::exponential},
                                                 {"two-modes", Law::two_modes}};
    const auto found = laws.find(name);
    if (found == laws.end())
        throw std::invalid_argument("unknown law '" + name + "': normal, lognormal, exponential or two-modes");
    return found->second;
}

struct FakeClockObject {
    FakeTimer timer;
    Rng phase;
};

void register_fake(py::module_& m) {
    py::class_<FakeWork>(m, "FakeWork", "Work of a chosen duration and noise; only a FakeTimer can run it.")
        .def(py::init([](double true_s, const std::string& law, double spread, double rho, double spike_probability,
                         double spike_factor, double second_share, double second_factor) {
                 if (!(true_s > 0.0) || !(spread >= 0.0) || !(rho >= 0.0 && rho < 1.0))
                     throw std::invalid_argument("FakeWork: true_s > 0, spread >= 0 and 0 <= rho < 1 are needed");
                 return FakeWork{
                     {true_s, law_of(law), spread, rho, spike_probability, spike_factor, second_share, second_factor}};
             }),
             "true_s"_a, py::kw_only(), "law"_a = "normal", "spread"_a = 0.02, "rho"_a = 0.0,
             "spike_probability"_a = 0.0, "spike_factor"_a = 3.0, "second_share"_a = 0.3, "second_factor"_a = 1.04)
        .def_property_readonly("true_s", [](const FakeWork& self) { return self.truth.true_s; });

    py::class_<FakeClockObject>(m, "FakeClock")
        .def(py::init([](double tick_s, double overhead_s, double overhead_sd_s, bool float32_ms, double sag,
                         double sag_time_s, double walk, std::uint64_t seed) {
                 if (!(tick_s >= 0.0) || !(overhead_s >= 0.0) || !(sag_time_s > 0.0))
                     throw std::invalid_argument("FakeTimer: a tick, overhead or time constant is negative");
                 const FakeClock clock{tick_s, overhead_s, overhead_sd_s, float32_ms, sag, sag_time_s, walk};
                 return FakeClockObject{FakeTimer(clock, seed), Rng(~seed)};
             }),
             py::kw_only(), "tick_s"_a, "overhead_s"_a, "overhead_sd_s"_a, "float32_ms"_a, "sag"_a, "sag_time_s"_a,
             "walk"_a, "seed"_a)
        .def("now", [](const FakeClockObject& self) { return self.timer.now(); })
        .def(
            "sample",
            [](FakeClockObject& self, FakeWork* work, const Counts& counts) {
                if (work == nullptr) return sample_native(self.timer, empty_work(), counts, self.phase);
                FakeRun run{&self.timer, &work->truth, &work->z};
                return sample_native(self.timer, Work{FakeRun::run, &run}, counts, self.phase);
            },
            "work"_a.none(true), "counts"_a);
}

}  // namespace

void register_timing(py::module_& m) {
    py::class_<WorkObject>(m, "Work", "Native work: what a timer runs n times in a row. Keeps its owner alive.")
        .def_property_readonly("owner", [](const WorkObject& self) { return self.owner; });
    m.def("capsule_work", &capsule_work, "capsule"_a);
    m.def("native_work", &native_work, "address"_a, "signature"_a, "context"_a, "owner"_a);
    m.def("spin_work", [] { return WorkObject{{[](void*, std::int64_t n) { spin(n); }, nullptr}, py::none()}; });

    register_host_clock<WallTimer>(m, "WallClock", [] { return WallTimer{}; });
    m.def("tsc_facts", [] {
        const TscFacts* facts = nullptr;
        {
            py::gil_scoped_release released;  // the first call calibrates for 50 ms
            facts = &tsc_facts();
        }
        return py::make_tuple(facts->hz, facts->reason);
    });
    register_host_clock<TscTimer>(m, "TscClock", [] {
        if (!tsc_facts().reason.empty()) throw std::runtime_error(tsc_facts().reason);
        return TscTimer{1.0 / tsc_facts().hz};
    });
    register_fake(m);
}

}  // namespace gm
