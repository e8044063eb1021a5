// SPDX-License-Identifier: Apache-2.0
// The module _whomap: what the plugin inside GDB needs of the core.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <fcntl.h>
#include <sys/ptrace.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/base/json_fields.h"
#include "core/base/version.h"
#include "core/capture/channel.h"
#include "core/capture/code_guard.h"
#include "core/capture/hit_recorder.h"
#include "core/capture/ring.h"
#include "core/plan/plan.h"
#include "core/stub/installation.h"
#include "core/stub/removal.h"
#include "core/stub/trap_engine.h"
#include "core/stub/trap_guard.h"
#include "core/trace/default_name.h"

namespace py = pybind11;

namespace whomap {
namespace {

template <class T>
T value_or_raise(Result<T> result) {
  if (!result) throw std::runtime_error(to_line(result.error()));
  return std::move(*result);
}

Plan plan_from(const std::string& text) {
  const auto json = parse_json(text);
  if (json.is_discarded()) throw std::runtime_error("the plan is not JSON");
  return value_or_raise(plan_from_json(json));
}

/// Records hits and sends them to the collector. Belongs to GDB's main thread, which is the tracer;
/// only wait_for_end() may be called from another.
class Tracer {
 public:
  Tracer(const std::string& plan_json, int channel_fd, std::size_t stack_bytes)
      : channel_(UniqueFd(channel_fd)),
        plan_(plan_from(plan_json)),
        stack_bytes_(stack_bytes),
        recorder_(plan_, stack_bytes, threads_,
                  [this](const CallEvent& event, const Registers& registers, const StackView& stack) {
                    constexpr int patience_ms = 100;  // the target's thread stands still meanwhile
                    return channel_.send_capture(event, registers, stack, patience_ms);
                  }) {}

  void at_syscall(std::uint32_t site, int tid) { recorder_.at_syscall(site, tid); }
  void at_return(std::uint32_t site, int tid) {
    recorder_.copy_at_most(channel_.stack_bytes(stack_bytes_));
    recorder_.at_return(site, tid);
  }
  /// `index` is that of the trap point in the stubs' state.
  void at_trap(std::size_t index, int tid) {
    const TrapPoint& trap = stubs_->traps.at(index);
    recorder_.copy_at_most(channel_.stack_bytes(stack_bytes_));
    recorder_.at_trap(trap.site, trap.number, tid);
    if (!trap_guard_->look_after(tid) || through_ring_) return;
    through_ring_ = true;
    set_traps(plan_.target.pid, *stubs_, Traps::leaving);
  }
  /// Takes over stubs that are in the target, as core/stub writes their state.
  void use_stubs(const std::string& state_json) {
    const auto json = parse_json(state_json);
    if (json.is_discarded()) throw std::runtime_error("the state of the stubs in the script is not JSON");
    adopt(value_or_raise(stub_state_from_json(json, "the state of the stubs")));
  }
  /// The same of stubs that another process has put in meanwhile, by the state file. False when there are
  /// none.
  bool find_stubs() {
    open_target();
    auto state = value_or_raise(load_state(target_->identity()));
    if (!state || state->jumps.empty()) return false;
    adopt(std::move(*state));
    return true;
  }
  /// Puts stubs in. GDB has attached, all threads stand still. Raises when none can be had; the target is
  /// then as it was.
  py::dict install_stubs() {
    open_target();
    const RingShape shape = value_or_raise(RingShape::of({}));
    TrapEngine engine(shape.bytes, plan_.page_size);
    auto installed = value_or_raise(whomap::install_stubs(*target_, plan_, engine, StopBy::debugger));
    adopt(std::move(installed.state));
    py::dict ring;
    ring["fd"] = ::fcntl(engine.ring_fd(), F_DUPFD_CLOEXEC, 0);
    ring["tsc_forbidden"] = engine.tsc_is_forbidden();
    py::list threads;
    for (const ThreadBase& each : engine.thread_bases()) threads.append(py::make_tuple(each.tid, each.base));
    ring["threads"] = threads;
    return ring;
  }
  /// Takes them out again; all threads stand still.
  py::dict remove_stubs() {
    if (!stubs_ || !target_) return {};
    const Removed removed = value_or_raise(whomap::remove_stubs(*target_, *stubs_, StopBy::debugger));
    stubs_.reset();
    const auto left = load_state(target_->identity());
    py::dict told;
    told["handler_left"] = left && *left && (*left)->trap_handler != 0;
    told["restored"] = removed.restored;
    told["foreign"] = removed.foreign;
    told["failed"] = removed.failed;
    told["inert_bytes"] = removed.inert_bytes;
    told["handler_kept"] = removed.handler_kept;
    return told;
  }
  /// The plan, with only those sites watched that have no stub.
  [[nodiscard]] std::string rest_of_plan() const { return to_json(plan_).dump(); }
  /// Of the stubs; None when there are none.
  [[nodiscard]] std::optional<std::string> stub_state() const {
    return stubs_ ? std::optional(to_json(*stubs_).dump()) : std::nullopt;
  }
  [[nodiscard]] py::dict counts() const {
    const TracerCounts counts = recorder_.counts();
    py::dict told;
    told["hits"] = counts.hits;
    told["captured"] = counts.captured;
    told["lost"] = counts.lost + counts.unreadable;
    return told;
  }
  /// Breakpoints into the stubs; GDB takes them for the program's own. All threads stand still.
  void arm_traps() {
    if (!stubs_) return;
    // Without a tracer a thread that blocks SIGTRAP dies of an int3: when there is one, none is met.
    const std::vector<pid_t> threads = target_->threads();
    through_ring_ = std::any_of(threads.begin(), threads.end(), blocks_sigtrap);
    if (set_traps(plan_.target.pid, *stubs_, through_ring_ ? Traps::leaving : Traps::armed) != 0)
      throw std::runtime_error("the stubs could not be armed");
  }
  /// GDB asks the kernel for reports of vfork, and then stops all threads until the child is done. Without
  /// ordinary breakpoints in its way the child needs nobody's care. All threads stand still.
  void leave_vforks_alone() const {
    if (!stubs_ || !target_) return;
    // What GDB sets (linux-nat.c, linux_nat_ptrace_options), less PTRACE_O_TRACEVFORK and _TRACEVFORKDONE.
    constexpr long options =
        PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC;
    for (const pid_t tid : target_->threads()) (void)::ptrace(PTRACE_SETOPTIONS, tid, nullptr, options);
  }
  /// Not exec'd, not ended.
  [[nodiscard]] bool runs_same_program() const { return target_ && target_->check(); }
  void disarm_traps() const {
    if (stubs_) set_traps(plan_.target.pid, *stubs_, Traps::off);
  }
  void stopped_for(std::uint64_t nanoseconds) { recorder_.stopped_for(nanoseconds); }
  void busy_for(std::uint64_t nanoseconds) { recorder_.busy_for(nanoseconds); }
  /// Looks at the code before breakpoints are set. Raises when the target is not the plan's.
  void remember_code() {
    open_target();
    guard_ = value_or_raise(CodeGuard::record(*target_, plan_));
  }
  /// Takes our int3 out of the code ahead of GDB. GDB goes on believing that they are in: it so still
  /// handles threads that have hit one, and children that were forked with them.
  void take_out_breakpoints() {
    if (target_ && guard_) foreign_ = guard_->take_out(*target_).foreign;
  }
  /// After GDB has removed its breakpoints: undoes its writes to what is somebody else's by now.
  void undo_foreign_writes() const {
    if (target_ && guard_) guard_->put_back(*target_, foreign_);
  }

  bool armed() { return channel_.send_armed(); }
  bool finished() { return channel_.send_finished(recorder_.counts()); }
  [[nodiscard]] bool wait_for_ready() const {
    const py::gil_scoped_release others_run;
    return channel_.wait_for_ready();
  }
  void wait_for_end() {
    const py::gil_scoped_release others_run;
    channel_.wait_for_end();
  }

 private:
  void open_target() {
    target_.emplace(value_or_raise(Target::open(plan_.target.pid)));
    if (target_->identity().start_time != plan_.target.start_time)
      throw std::runtime_error("the process was replaced by another one");
  }
  void adopt(StubState state) {
    plan_ = without_stubs(plan_, state);
    trap_guard_.emplace(plan_.target.pid, state.action_address, state.syscall_address);
    stubs_ = std::move(state);
  }
  TracerChannel channel_;
  Plan plan_;
  std::optional<Target> target_;
  std::optional<CodeGuard> guard_;
  std::vector<CodeGuard::Foreign> foreign_;
  std::optional<StubState> stubs_;
  std::optional<TrapGuard> trap_guard_;
  bool through_ring_ = false;  ///< calls that begin meet no int3 any more
  PtraceThreads threads_;
  std::size_t stack_bytes_;
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
      .def("at_trap", &Tracer::at_trap)
      .def("use_stubs", &Tracer::use_stubs)
      .def("find_stubs", &Tracer::find_stubs)
      .def("install_stubs", &Tracer::install_stubs)
      .def("remove_stubs", &Tracer::remove_stubs)
      .def("rest_of_plan", &Tracer::rest_of_plan)
      .def("stub_state", &Tracer::stub_state)
      .def("counts", &Tracer::counts)
      .def("arm_traps", &Tracer::arm_traps)
      .def("leave_vforks_alone", &Tracer::leave_vforks_alone)
      .def("runs_same_program", &Tracer::runs_same_program)
      .def("disarm_traps", &Tracer::disarm_traps)
      .def("stopped_for", &Tracer::stopped_for)
      .def("busy_for", &Tracer::busy_for)
      .def("remember_code", &Tracer::remember_code)
      .def("take_out_breakpoints", &Tracer::take_out_breakpoints)
      .def("undo_foreign_writes", &Tracer::undo_foreign_writes)
      .def("armed", &Tracer::armed)
      .def("finished", &Tracer::finished)
      .def("wait_for_ready", &Tracer::wait_for_ready)
      .def("wait_for_end", &Tracer::wait_for_end);
  module.def(
      "default_trace_name",
      [](const std::string& plan) { return whomap::default_trace_name(whomap::plan_from(plan).target); },
      py::arg("plan"), "Where a trace goes when nobody says it: a name in the working folder.");
  module.def(
      "make_channel",
      [] {
        auto ends = whomap::value_or_raise(whomap::make_channel());
        return py::make_tuple(ends.tracer.release(), ends.collector.release());
      },
      "Two connected descriptors: (tracer, collector). The caller owns both.");
}
