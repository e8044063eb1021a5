// SPDX-License-Identifier: Apache-2.0
// The module _whomap: what the plugin inside GDB needs of the core.
#include <pybind11/pybind11.h>

#include <memory>
#include <stdexcept>
#include <string>

#include "core/base/version.h"
#include "core/capture/channel.h"
#include "core/capture/hit_recorder.h"
#include "core/plan/plan.h"

namespace py = pybind11;

namespace whomap {
namespace {

template <class T>
T value_or_raise(Result<T> result) {
  if (!result) throw std::runtime_error(to_line(result.error()));
  return std::move(*result);
}

/// Records hits and sends them to the collector. Belongs to GDB's main thread, which is the tracer;
/// only wait_for_end() may be called from another.
class Tracer {
 public:
  Tracer(const std::string& plan_json, int channel_fd, std::size_t stack_bytes)
      : channel_(UniqueFd(channel_fd)),
        recorder_(plan_from(plan_json), stack_bytes, threads_,
                  [this](const CallEvent& event, const Registers& registers, std::uint64_t address,
                         std::span<const std::byte> stack) {
                    constexpr int patience_ms = 100;  // the target's thread stands still meanwhile
                    return channel_.send_capture(event, registers, address, stack, patience_ms);
                  }) {}

  void at_syscall(std::uint32_t site, int tid) { recorder_.at_syscall(site, tid); }
  void at_return(std::uint32_t site, int tid) { recorder_.at_return(site, tid); }
  void stopped_for(std::uint64_t nanoseconds) { recorder_.stopped_for(nanoseconds); }
  bool armed() { return channel_.send_armed(); }
  bool finished() { return channel_.send_finished(recorder_.counts()); }
  [[nodiscard]] bool wait_for_ready() const {
    const py::gil_scoped_release others_run;
    return channel_.wait_for_ready();
  }
  void wait_for_end() const {
    const py::gil_scoped_release others_run;
    channel_.wait_for_end();
  }
  [[nodiscard]] std::uint64_t hits() const { return recorder_.counts().hits; }

 private:
  static Plan plan_from(const std::string& text) {
    const auto json = nlohmann::json::parse(text, nullptr, false);
    if (json.is_discarded()) throw std::runtime_error("the plan in the script is not JSON");
    return value_or_raise(plan_from_json(json));
  }

  TracerChannel channel_;
  PtraceThreads threads_;
  HitRecorder recorder_;
};

}  // namespace
}  // namespace whomap

PYBIND11_MODULE(_whomap, module) {
  using whomap::Tracer;
  module.attr("version") = WHOMAP_VERSION;
  py::class_<Tracer>(module, "Tracer")
      .def(py::init<const std::string&, int, std::size_t>(), py::arg("plan"), py::arg("channel_fd"),
           py::arg("stack_bytes"), "Takes ownership of channel_fd.")
      .def("at_syscall", &Tracer::at_syscall)
      .def("at_return", &Tracer::at_return)
      .def("stopped_for", &Tracer::stopped_for)
      .def("armed", &Tracer::armed)
      .def("finished", &Tracer::finished)
      .def("wait_for_ready", &Tracer::wait_for_ready)
      .def("wait_for_end", &Tracer::wait_for_end)
      .def_property_readonly("hits", &Tracer::hits);
  module.def("make_channel", [] {
    auto ends = whomap::value_or_raise(whomap::make_channel());
    return py::make_tuple(ends.tracer.release(), ends.collector.release());
  }, "Two connected descriptors: (tracer, collector). The caller owns both.");
}
