// Binds csrc/cuda/nccl: the submodule _cuda.nccl.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstring>
#include <memory>

#include "bind/free_without_gil.hpp"
#include "bind/sampling.hpp"
#include "bind/work_object.hpp"
#include "cuda/nccl/collective.hpp"
#include "cuda/nccl/rank_graphs.hpp"
#include "cuda/nccl/rank_timer.hpp"
#include "cuda/stream.hpp"

namespace py = pybind11;
using namespace py::literals;

namespace gm {
namespace {

using Quietly = py::call_guard<py::gil_scoped_release>;  // whatever waits for other ranks
using Shared = std::shared_ptr<Communicators>;

struct NcclObject {
    std::shared_ptr<const NcclApi> api;
};

// What a task uses lives as long as it does.
template <class T>
struct Held {
    std::unique_ptr<T, FreeWithoutGil> task;
    py::object keep;
};

template <class T>
WorkObject work_of(const py::object& self) {
    return {self.cast<Held<T>&>().task->work(), self};
}

template <class T>
void run_and_wait(Held<T>& self, std::int64_t n) {
    if (n < 0) throw py::value_error("n must not be negative");
    const py::gil_scoped_release released;
    self.task->run(n);
    self.task->communicators()->wait();
}

nccl::UniqueId id_of(const std::string& bytes) {
    nccl::UniqueId id{};
    if (bytes.size() != sizeof id.internal)
        throw py::value_error("an id has " + std::to_string(sizeof id.internal) + " bytes, not " +
                              std::to_string(bytes.size()));
    std::memcpy(id.internal, bytes.data(), sizeof id.internal);
    return id;
}

void register_library(py::module_& m) {
    py::class_<NcclObject>(m, "Nccl", py::module_local())
        .def(py::init([](const std::string& path) {
                 const py::gil_scoped_release released;  // a third of a gigabyte
                 return NcclObject{std::make_shared<const NcclApi>(path)};
             }),
             "path"_a)
        .def_property_readonly("path", [](const NcclObject& self) { return self.api->path(); })
        .def_property_readonly("version", [](const NcclObject& self) { return self.api->version(); })
        .def_property_readonly("version_text",
                               [](const NcclObject& self) { return nccl::version_text(self.api->version()); })
        .def("unique_id",
             [](const NcclObject& self) {
                 nccl::UniqueId id{};
                 {
                     const py::gil_scoped_release released;
                     id = self.api->make_id();
                 }
                 return py::bytes(id.internal, sizeof id.internal);
             })
        .def(
            "why_not",
            [](const NcclObject& self, const std::string& dtype) { return self.api->why_not(nccl::type_of(dtype)); },
            "dtype"_a);
}

template <class Value, class Get>
std::vector<Value> of_ranks(const Communicators& self, Get get) {
    std::vector<Value> values;
    for (const auto& rank : self.ranks()) values.push_back(get(rank));
    return values;
}

template <class... Arguments>
Shared make(Arguments&&... arguments) {
    const py::gil_scoped_release released;
    auto made = std::make_unique<Communicators>(std::forward<Arguments>(arguments)...);
    return Shared(made.release(), FreeWithoutGil{});
}

void register_communicators(py::module_& m) {
    py::class_<Communicators, Shared>(m, "Communicators", py::module_local())
        .def(py::init([](const NcclObject& nccl, int size, const py::bytes& id, const std::vector<int>& ranks,
                         const std::vector<int>& devices, double timeout_s, bool blocking) {
                 return make(nccl.api, size, id_of(id), ranks, devices, NcclOptions{timeout_s, blocking});
             }),
             "nccl"_a, "size"_a, "id"_a, "ranks"_a, "devices"_a, py::kw_only(), "timeout_s"_a = 60.0,
             "blocking"_a = false)
        .def_static(
            "local",
            [](const NcclObject& nccl, const std::vector<int>& devices, double timeout_s, bool blocking) {
                return make(nccl.api, devices, NcclOptions{timeout_s, blocking});
            },
            "nccl"_a, "devices"_a, py::kw_only(), "timeout_s"_a = 60.0, "blocking"_a = false)
        .def_property(
            "timeout_s", [](const Communicators& self) { return self.timeout_s.load(); },
            [](Communicators& self, double seconds) {
                if (!(seconds > 0.0)) throw py::value_error("timeout_s must be positive");
                self.timeout_s = seconds;
            })
        .def_property_readonly("size", &Communicators::size)
        .def_property_readonly(
            "ranks",
            [](const Communicators& self) { return of_ranks<int>(self, [](const auto& one) { return one.rank; }); })
        .def_property_readonly(
            "devices",
            [](const Communicators& self) { return of_ranks<int>(self, [](const auto& one) { return one.device; }); })
        .def_property_readonly("blocking", &Communicators::blocking)
        .def_property_readonly("aborted", &Communicators::aborted)
        .def("poll", &Communicators::poll, Quietly())
        .def("wait", &Communicators::wait, Quietly())
        .def("abort", &Communicators::abort, Quietly())
        .def("close", &Communicators::close, Quietly());
}

void register_collectives(py::module_& m) {
    using One = Held<Collective>;
    using Many = Held<CollectiveGroup>;
    py::class_<One>(m, "Collective", py::module_local())
        .def(py::init([](const Shared& communicators, const std::string& kind, const std::string& dtype,
                         std::int64_t count, const std::vector<std::uintptr_t>& send,
                         const std::vector<std::uintptr_t>& receive, const std::string& op, int root, py::object keep) {
                 const Collective::Spec spec{kind, dtype, count, send, receive, op, root};
                 std::unique_ptr<Collective, FreeWithoutGil> made;
                 {
                     const py::gil_scoped_release released;
                     made.reset(new Collective(communicators, spec));
                 }
                 return One{std::move(made), std::move(keep)};
             }),
             "communicators"_a, "kind"_a, "dtype"_a, "count"_a, "send"_a, "receive"_a, "op"_a = "sum", "root"_a = 0,
             "keep"_a = py::none())
        .def_property_readonly("in_place", [](const One& self) { return self.task->in_place(); })
        .def_property_readonly("name", [](const One& self) { return self.task->name(); })
        .def_property_readonly("work", &work_of<Collective>)
        .def("run", &run_and_wait<Collective>, "n"_a = 1);
    py::class_<Many>(m, "Group", py::module_local())
        .def(py::init([](const py::sequence& collectives) {
                 std::vector<const Collective*> all;
                 for (const auto& one : collectives) all.push_back(one.cast<const One&>().task.get());
                 std::unique_ptr<CollectiveGroup, FreeWithoutGil> made(new CollectiveGroup(std::move(all)));
                 return Many{std::move(made), py::tuple(collectives)};
             }),
             "collectives"_a)
        .def_property_readonly("work", &work_of<CollectiveGroup>)
        .def("run", &run_and_wait<CollectiveGroup>, "n"_a = 1);
}

void register_graphs(py::module_& m) {
    using Graphs = Held<RankGraphs>;
    py::class_<Graphs>(m, "Graphs", py::module_local())
        .def(py::init([](const Shared& communicators, const WorkObject& work) {
                 std::unique_ptr<RankGraphs, FreeWithoutGil> made(new RankGraphs(communicators, work.work));
                 return Graphs{std::move(made), work.owner};
             }),
             "communicators"_a, "work"_a)
        .def(
            "capture", [](Graphs& self, std::int64_t runs) { self.task->capture(runs); }, "runs"_a, Quietly())
        .def(
            "nodes", [](const Graphs& self, std::int64_t runs) { return self.task->nodes(runs); }, "runs"_a)
        .def_property_readonly("work", &work_of<RankGraphs>)
        .def(
            "replay",
            [](const py::object& self, std::int64_t runs) {
                RankGraphs& graphs = *self.cast<Graphs&>().task;
                {
                    const py::gil_scoped_release released;
                    graphs.capture(runs);
                }
                auto made = std::make_unique<RankReplay>(graphs, runs);
                const Work work = made->work();
                py::capsule owner(made.release(), [](void* task) { delete static_cast<RankReplay*>(task); });
                return WorkObject{work, py::make_tuple(std::move(owner), self)};
            },
            "runs"_a);
}

class RankClock {
  public:
    RankClock(const Shared& communicators, double gate_timeout_s, double phase_s, std::uint64_t seed)
        : timer(communicators), phase_(seed) {
        timer.gate_timeout_s = gate_timeout_s;
        timer.phase_s = phase_s;
    }

    py::array_t<double> sample(const WorkObject* work, const Counts& counts, bool gated, std::int64_t queue_limit) {
        Spans spans(counts);
        timer.gated = gated;
        timer.queue_limit = queue_limit;
        timer.spans_s.clear();
        timer.waits_s.clear();
        timer.walls_s.clear();
        RankTimer::Fed fed{&timer, work != nullptr ? work->work : empty_work()};
        const Work through{&RankTimer::Fed::run, &fed};
        const std::int64_t* in = counts.data();
        double* out = spans.seconds.mutable_data();
        {
            const py::gil_scoped_release released;
            gm::sample(timer, through, in, spans.k, out, phase_, Signals{});
        }
        return by_rank(timer.spans_s);
    }

    py::array_t<double> by_rank(const std::vector<double>& values) const {
        const auto ranks = static_cast<py::ssize_t>(timer.count());
        const std::vector<py::ssize_t> shape{static_cast<py::ssize_t>(values.size()) / ranks, ranks};
        return py::array_t<double>(shape, values.data());
    }

    RankTimer timer;

  private:
    Rng phase_;
};

void register_clock(py::module_& m) {
    py::class_<RankClock, std::unique_ptr<RankClock, FreeWithoutGil>>(m, "Clock", py::module_local())
        .def(py::init([](const Shared& communicators, double gate_timeout_s, double phase_s, std::uint64_t seed) {
                 const py::gil_scoped_release released;
                 return std::unique_ptr<RankClock, FreeWithoutGil>(
                     new RankClock(communicators, gate_timeout_s, phase_s, seed));
             }),
             "communicators"_a, py::kw_only(), "gate_timeout_s"_a = 1.0, "phase_s"_a = 1.1e-6, "seed"_a = 1)
        .def("sample", &RankClock::sample, "work"_a.none(true), "counts"_a, "gated"_a = true, "queue_limit"_a = 500)
        .def("now", [](const RankClock& self) { return self.timer.now(); })
        .def_property_readonly("waits_s", [](const RankClock& self) { return self.by_rank(self.timer.waits_s); })
        .def_property_readonly("walls_s",
                               [](const RankClock& self) {
                                   const auto& all = self.timer.walls_s;
                                   return py::array_t<double>(static_cast<py::ssize_t>(all.size()), all.data());
                               })
        .def_property(
            "gate_timeout_s", [](const RankClock& self) { return self.timer.gate_timeout_s; },
            [](RankClock& self, double seconds) { self.timer.gate_timeout_s = seconds; })
        .def_property(
            "phase_s", [](const RankClock& self) { return self.timer.phase_s; },
            [](RankClock& self, double seconds) { self.timer.phase_s = seconds; });
}

}  // namespace

// `nccl` is the submodule _cuda.nccl.
void register_cuda_nccl(py::module_& nccl) {
    register_library(nccl);
    register_communicators(nccl);
    register_collectives(nccl);
    register_graphs(nccl);
    register_clock(nccl);
    // Every wait for a device of this process hears of communicators in trouble, whatever it waits for.
    static void (*const before)() = between_waits;
    between_waits = [] {
        before();
        poll_communicators();
    };
}

}  // namespace gm
