// SPDX-License-Identifier: Apache-2.0
// whomap repair: after a tracer died, the code of the process as it was.
#include <fmt/format.h>

#include "cli/command.h"
#include "cli/live.h"
#include "core/stub/carriers.h"

namespace po = boost::program_options;

namespace whomap::cli {
namespace {

std::string describe(const Removed& removed, pid_t pid) {
  std::string text = removed.restored == 0 ? fmt::format("process {} had its own code already", pid)
                                           : fmt::format("process {}: the original code is back at {} places",
                                                         pid, removed.restored);
  if (removed.inert_bytes != 0)
    text += fmt::format("; {} KiB of ours stay mapped, unused", removed.inert_bytes / 1024);
  text += "\n";
  for (const std::uint64_t address : removed.foreign)
    text += fmt::format("process {}: the code at {:#x} was changed by somebody else and left alone\n", pid,
                        address);
  for (const std::uint64_t address : removed.failed)
    text += fmt::format("process {}: the code at {:#x} could not be written\n", pid, address);
  return text;
}

/// A child of a traced process may have been forked with stubs in its code.
ExitStatus repair_carrier(const Target& target) {
  const auto state = state_of_carrier(target.pid());
  if (!state) return print_text(fmt::format("nothing is known to be changed in process {}\n", target.pid()));
  const auto removed = remove_stubs(target, *state);
  if (!removed) return report_error(removed.error());
  const ExitStatus printed = print_text(describe(*removed, target.pid()));
  return removed->failed.empty() ? printed : ExitStatus::not_permitted;
}

ExitStatus run(const std::vector<std::string>& arguments) {
  CommandLine line("repair", "-p PID", "put the original code back after a tracer died");
  std::string pid_text;
  line.options().add_options()("pid,p", po::value(&pid_text)->value_name("PID")->required(),
                               "the process that was traced");
  if (const auto stop = line.parse(arguments)) return *stop;
  const auto pid = parse_pid(pid_text);
  if (!pid) return report_usage("repair", pid.error());
  const auto target = open_target(*pid);
  if (!target) return report_error(target.error());
  const auto lock = lock_state(target->target.identity());
  if (!lock) return report_error(lock.error());
  auto state = load_state(target->target.identity());
  if (!state) return report_error(state.error());
  if (!*state) return repair_carrier(target->target);
  std::vector<RemovedFromCarrier> children;
  const auto removed = remove_everywhere(target->target, **state, &children);
  if (!removed) return report_error(removed.error());
  std::string text = describe(*removed, *pid);
  bool whole = removed->failed.empty() && removed->carriers_left.empty();
  for (const RemovedFromCarrier& child : children) {
    if (child.removed) {
      text += describe(*child.removed, child.pid);
      whole = whole && child.removed->failed.empty();
    } else {
      text += fmt::format("process {}, a child that carries stubs: {}\n", child.pid,
                          to_line(child.removed.error()));
    }
  }
  const ExitStatus printed = print_text(text);
  return whole ? printed : ExitStatus::not_permitted;
}

}  // namespace

const CommandInfo repair_command{"repair", "put the original code back after a tracer died", run};

}  // namespace whomap::cli
