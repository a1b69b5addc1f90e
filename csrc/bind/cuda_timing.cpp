// Binds csrc/cuda's timers and the works that are no kernel of ours: _cuda.timing.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bind/sampling.hpp"
#include "bind/work_object.hpp"
#include "cuda/copies.hpp"
#include "cuda/graphs.hpp"
#include "cuda/hung.hpp"
#include "cuda/memory.hpp"
#include "cuda/rotation.hpp"
#include "cuda/timers.hpp"

namespace gm {
namespace {

using namespace py::literals;

// Hands a span's host time out beside it.
struct Recording {
    EventTimer& timer;
    double* walls;
    EventTimer::Started start() { return timer.start(); }
    int stop() { return timer.stop(); }
    void pause(std::uint64_t random) { timer.pause(random); }
    double seconds(const EventTimer::Started& start, int stop) {
        *walls++ = timer.waited_s();
        return timer.seconds(start, stop);
    }
};

class EventClock {
  public:
    EventClock(int device, const EventOptions& options, std::uint64_t seed, std::optional<cudaStream_t> stream)
        : timer(device, options, stream), phase_(seed) {}

    py::array_t<double> sample(const py::object& work, const Counts& counts, bool gated, std::int64_t queue_limit) {
        timer.queue_limit = queue_limit;
        if (work.is_none()) return sample_work(empty_work(), counts, gated, false);
        if (py::isinstance<WorkObject>(work))
            return sample_work(work.cast<const WorkObject&>().work, counts, gated, false);
        return sample_work(Work{call_python, work.ptr()}, counts, gated, true);
    }

    py::array_t<double> walls_s{0};  // of the last sample: host's time from the gate's opening to the end
    EventTimer timer;

  private:
    py::array_t<double> sample_work(const Work& work, const Counts& counts, bool gated, bool needs_gil) {
        Spans spans(counts);
        walls_s = py::array_t<double>(counts.size());
        Recording recording{timer, walls_s.mutable_data()};
        timer.gated = gated;
        EventTimer::Fed fed{&timer, work};
        const Work through{&EventTimer::Fed::run, &fed};
        const std::int64_t* in = counts.data();
        double* out = spans.seconds.mutable_data();
        if (needs_gil) {
            gm::sample(recording, through, in, spans.k, out, phase_, Signals{});
        } else {
            py::gil_scoped_release released;
            gm::sample(recording, through, in, spans.k, out, phase_, Signals{});
        }
        return spans.seconds;
    }

    Rng phase_;
};

// A task as Python sees it; `keep` are objects whose memory it uses.
template <class T>
WorkObject work_of(std::unique_ptr<T> task, py::object keep = py::none()) {
    const Work work = task->work();
    py::capsule owner(task.release(), [](void* p) { delete static_cast<T*>(p); });
    return {work, py::make_tuple(std::move(owner), std::move(keep))};
}

void* pointer(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

// A stream that somebody else made, by its address.
std::optional<cudaStream_t> stream_at(std::optional<std::uintptr_t> address) {
    if (!address) return std::nullopt;
    return reinterpret_cast<cudaStream_t>(*address);
}

Work native_or_python(const py::object& work) {
    if (py::isinstance<WorkObject>(work)) return work.cast<const WorkObject&>().work;
    return {call_python, work.ptr()};
}

struct GraphsObject {
    GraphsObject(int device, const py::object& work, bool keep, std::optional<cudaStream_t> stream)
        : graphs(device, native_or_python(work), stream) {
        if (keep) kept = work;
    }
    py::object kept;
    Graphs graphs;
};

void register_event_clock(py::module_& m) {
    py::class_<EventClock>(m, "EventClock")
        .def(py::init([](int device, bool cold, std::size_t evict_bytes, double filler_s, double gate_timeout_s,
                         double watchdog_s, double phase_s, std::uint64_t seed, std::optional<std::uintptr_t> stream) {
                 const EventOptions options{cold, evict_bytes, filler_s, gate_timeout_s, watchdog_s, phase_s};
                 return std::make_unique<EventClock>(device, options, seed, stream_at(stream));
             }),
             "device"_a, py::kw_only(), "cold"_a = false, "evict_bytes"_a = 0, "filler_s"_a = 20e-6,
             "gate_timeout_s"_a = 1.0, "watchdog_s"_a = 30.0, "phase_s"_a = 1.1e-6, "seed"_a = 1,
             "stream"_a = py::none())
        .def("sample", &EventClock::sample, "work"_a.none(true), "counts"_a, "gated"_a = true, "queue_limit"_a = 500)
        .def("now", [](const EventClock& self) { return self.timer.now(); })
        .def("gate_holds",
             [](EventClock& self) {
                 py::gil_scoped_release released;
                 return self.timer.gate_holds();
             })
        .def_readonly("walls_s", &EventClock::walls_s)
        .def_property_readonly(
            "stream", [](const EventClock& self) { return reinterpret_cast<std::uintptr_t>(self.timer.stream()); })
        .def_property(
            "gate_timeout_s", [](const EventClock& self) { return self.timer.options.gate_timeout_s; },
            [](EventClock& self, double seconds) { self.timer.options.gate_timeout_s = seconds; })
        .def_property(
            "phase_s", [](const EventClock& self) { return self.timer.options.phase_s; },
            [](EventClock& self, double seconds) { self.timer.options.phase_s = seconds; });

    py::class_<GraphsObject>(m, "Graphs")
        .def(py::init([](int device, const py::object& work, bool keep, std::optional<std::uintptr_t> stream) {
                 return std::make_unique<GraphsObject>(device, work, keep, stream_at(stream));
             }),
             "device"_a, "work"_a, "keep"_a = true, "stream"_a = py::none())
        .def(
            "capture", [](GraphsObject& self, std::int64_t runs) { self.graphs.capture(runs); }, "runs"_a)
        .def(
            "nodes", [](const GraphsObject& self, std::int64_t runs) { return self.graphs.nodes(runs); }, "runs"_a)
        .def_property_readonly(
            "work", [](py::object self) { return WorkObject{self.cast<GraphsObject&>().graphs.work(), self}; })
        .def(
            "replay",
            [](py::object self, std::int64_t runs) {
                Graphs& graphs = self.cast<GraphsObject&>().graphs;
                graphs.capture(runs);
                return work_of(std::make_unique<Replay>(graphs, runs), self);
            },
            "runs"_a);
    m.def("is_hung", &is_hung, "device"_a);
    m.def("set_hung", &set_hung, "device"_a, "hung"_a);
}

void register_copies(py::module_& m) {
    using Address = std::uintptr_t;
    m.def(
        "copy",
        [](int device, Address to, Address from, std::size_t size_bytes, const std::string& direction,
           py::object keep) {
            const Transfer transfer{pointer(to), pointer(from), size_bytes};
            return work_of(std::make_unique<Copy>(device, transfer, kind_of(direction)), std::move(keep));
        },
        "device"_a, "to"_a, "source"_a, "size_bytes"_a, "direction"_a, "keep"_a);
    m.def(
        "copy_both",
        [](int device, std::pair<Address, Address> in, std::pair<Address, Address> out, std::size_t size_bytes,
           py::object keep) {
            const Transfer to_device{pointer(in.first), pointer(in.second), size_bytes};
            const Transfer to_host{pointer(out.first), pointer(out.second), size_bytes};
            return work_of(std::make_unique<CopyBoth>(device, to_device, to_host), std::move(keep));
        },
        "device"_a, "to_device"_a, "to_host"_a, "size_bytes"_a, "keep"_a);
    m.def(
        "copy_peer",
        [](int from_device, int to_device, Address to, Address from, std::size_t size_bytes, py::object keep) {
            const Transfer transfer{pointer(to), pointer(from), size_bytes};
            return work_of(std::make_unique<CopyPeer>(from_device, to_device, transfer), std::move(keep));
        },
        "from_device"_a, "to_device"_a, "to"_a, "source"_a, "size_bytes"_a, "keep"_a);
    py::class_<PeerAccess>(m, "PeerAccess")
        .def(py::init<int, int, bool>(), "a"_a, "b"_a, "wanted"_a)
        .def_static("possible", &PeerAccess::possible, "a"_a, "b"_a);
}

void register_works(py::module_& m) {
    m.def(
        "spin",
        [](int device, unsigned long long step, bool of_cycles) {
            return work_of(std::make_unique<Spin>(device, step, of_cycles));
        },
        "device"_a, "step"_a, "of_cycles"_a = false);
    m.def(
        "malloc_free",
        [](int device, std::size_t size_bytes) { return work_of(std::make_unique<MallocFree>(device, size_bytes)); },
        "device"_a, "size_bytes"_a);
    m.def(
        "prefetch",
        [](int device, std::uintptr_t address, std::size_t size_bytes, py::object keep) {
            return work_of(std::make_unique<Prefetch>(device, pointer(address), size_bytes), std::move(keep));
        },
        "device"_a, "address"_a, "size_bytes"_a, "keep"_a);
    m.def(
        "touch",
        [](int device, std::uintptr_t address, std::size_t size_bytes, std::size_t page_bytes, py::object keep) {
            return work_of(std::make_unique<Touch>(device, pointer(address), size_bytes, page_bytes), std::move(keep));
        },
        "device"_a, "address"_a, "size_bytes"_a, "page_bytes"_a, "keep"_a);
    m.def(
        "synced",
        [](int device, const py::object& work, bool each) {
            const Work inner = work.is_none() ? Work{nullptr, nullptr} : work.cast<const WorkObject&>().work;
            return work_of(std::make_unique<Synced>(device, inner, each), work);
        },
        "device"_a, "work"_a.none(true), "each"_a = true);
    m.def("event_trip", [](int device) { return work_of(std::make_unique<EventTrip>(device)); }, "device"_a);
    m.def(
        "rotation",
        [](const std::vector<WorkObject>& works, py::object keep) {
            std::vector<Work> inner;
            for (const WorkObject& work : works) inner.push_back(work.work);
            return work_of(std::make_unique<Rotation>(std::move(inner)), std::move(keep));
        },
        "works"_a, "keep"_a);

    struct PoolObject {
        std::unique_ptr<PoolPair> pool;
    };
    py::class_<PoolObject>(m, "Pool")
        .def(py::init([](int device, std::size_t size_bytes) {
                 return PoolObject{std::make_unique<PoolPair>(device, size_bytes)};
             }),
             "device"_a, "size_bytes"_a)
        .def_property_readonly("work",
                               [](py::object self) { return WorkObject{self.cast<PoolObject&>().pool->work(), self}; })
        .def_property_readonly("reserved_bytes", [](const PoolObject& self) { return self.pool->reserved_bytes(); })
        .def_property_readonly("most_used_bytes", [](const PoolObject& self) { return self.pool->most_used_bytes(); });
}

}  // namespace

// `timing` is the submodule _cuda.timing.
void register_cuda_timing(py::module_& timing) {
    register_event_clock(timing);
    register_copies(timing);
    register_works(timing);
}

}  // namespace gm
