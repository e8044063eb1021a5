// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor_checks.h"

#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <optional>

#include <fmt/format.h>

#include "cli/gdb_proof.h"
#include "cli/live.h"
#include "cli/probe_engine.h"
#include "core/base/files.h"
#include "core/elf/module_map.h"
#include "core/match/quantity.h"
#include "core/plan/make_plan.h"
#include "core/process/interrupted_calls.h"
#include "core/process/permission.h"
#include "core/process/vma.h"
#include "core/stub/foreign_stubs.h"
#include "core/stub/stub_state.h"
#include "gdb_plugin/gdb_process.h"

namespace whomap::cli {
namespace {

Finding good(std::string check, std::string text) {
  return {std::move(check), Health::good, std::move(text), {}, ExitStatus::done};
}

Finding warning(std::string check, std::string text, std::string remedy) {
  return {std::move(check), Health::warning, std::move(text), std::move(remedy), ExitStatus::done};
}

Finding problem(std::string check, const Error& error) {
  return {std::move(check), Health::problem, to_line({error.code, error.happened, {}, error.os_error}),
          error.remedy, exit_status(error.code)};
}

std::optional<int> number_in(const std::string& path) {
  const auto text = read_file(path);
  int value = 0;
  if (!text) return std::nullopt;
  const auto [end, wrong] = std::from_chars(text->data(), text->data() + text->size(), value);
  return wrong == std::errc{} ? std::optional(value) : std::nullopt;
}

Finding kernel() {
  utsname name{};
  ::uname(&name);
  if (std::string_view(name.machine) != "x86_64")
    return problem("kernel",
                   {ErrorCode::unsupported_target, fmt::format("this is a {} machine", name.machine),
                    "whomap traces x86-64 programs; whomap plan --elf reads AArch64 files here too"});
  const UniqueFd self(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  if (!self.valid())
    return problem("kernel", {ErrorCode::kernel_feature, "this kernel has no pidfd_open",
                              "Linux 5.3 or later is needed", errno});
  return good("kernel", fmt::format("Linux {}", name.release));
}

Finding gdb(bool needed) {
  const auto facts = examine_gdb();
  if (!facts && !needed)
    return warning("gdb", to_line({facts.error().code, facts.error().happened, {}, facts.error().os_error}),
                   "the probe engine watches this process without it");
  if (!facts) return problem("gdb", facts.error());
  return good("gdb",
              fmt::format("GDB {} with Python {} ({}) loads the plugin; inside GDB: source {}/whomap.py",
                          facts->version, facts->python, facts->path, facts->plugin));
}

/// Does the GDB at hand do with stubs what the gdb engine needs? Nothing where there is no GDB to ask.
std::optional<Finding> proof() {
  const auto gdb = find_gdb();
  if (!gdb) return std::nullopt;
  const auto proven = prove_gdb(*gdb);
  if (proven)
    return good("stubs",
                fmt::format("tried with this GDB on a throw-away process: {} captured as they were made",
                            count_text(proven->calls, "call")));
  return warning("stubs",
                 to_line({proven.error().code, proven.error().happened, {}, proven.error().os_error}),
                 "the gdb engine uses ordinary breakpoints then, if it can; the probe engine needs no GDB");
}

/// What holds for any process of another user, or of one's own.
Finding permission() {
  constexpr std::uint64_t cap_sys_ptrace = std::uint64_t{1} << 19;  // include/uapi/linux/capability.h
  const auto own = read_status(::getpid());
  const bool capable = own && (own->effective_capabilities.value_or(0) & cap_sys_ptrace) != 0;
  const auto scope = number_in("/proc/sys/kernel/yama/ptrace_scope");
  const std::string yama =
      scope ? fmt::format("kernel.yama.ptrace_scope is {}", *scope) : "this kernel has no Yama";
  if (scope == 3)
    return problem("permission", {ErrorCode::yama, yama + ": nobody may attach",
                                  "nothing but a reboot with another setting changes that"});
  if (capable) return good("permission", "CAP_SYS_PTRACE is there; " + yama);
  if (scope.value_or(0) == 0)
    return good("permission", "processes of your own can be traced; others need root; " + yama);
  return warning("permission", yama + ", and CAP_SYS_PTRACE is missing",
                 "run whomap as root (sudo); in a container: --cap-add SYS_PTRACE");
}

Finding counters() {
  perf_event_attr attributes{};
  attributes.size = sizeof attributes;
  attributes.type = PERF_TYPE_BREAKPOINT;
  attributes.bp_type = HW_BREAKPOINT_X;
  attributes.bp_addr = reinterpret_cast<std::uintptr_t>(&::getppid);
  attributes.bp_len = sizeof(long);
  attributes.disabled = 1;
  attributes.exclude_kernel = 1;
  attributes.exclude_hv = 1;
  const UniqueFd counter(
      static_cast<int>(::syscall(SYS_perf_event_open, &attributes, 0, -1, -1, PERF_FLAG_FD_CLOEXEC)));
  if (counter.valid()) return good("perf", "hits can be counted without a stop (plan --observe)");
  const bool refused = errno == EACCES || errno == EPERM;
  return warning("perf", to_line({ErrorCode::kernel_feature, "plan --observe does not work here", {}, errno}),
                 refused ? "run as root, or lower kernel.perf_event_paranoid; a trace works without it"
                         : "a trace works without it");
}

Finding state_files() {
  const auto folder = state_folder();
  if (folder)
    return good("state", fmt::format("what is changed in a process is written down in {}", *folder));
  return problem("state", folder.error());
}

Finding room() {
  constexpr std::uint64_t enough = 64 << 20;  // of events; a trace of 10 s seldom has a tenth
  struct statvfs facts {};
  if (::access(".", W_OK | X_OK) != 0 || ::statvfs(".", &facts) != 0)
    return warning("room", "a trace cannot be written in this folder",
                   "go to another one, or name a file with -o");
  const std::uint64_t free_bytes = facts.f_bavail * facts.f_frsize;
  if (free_bytes < enough)
    return warning("room", fmt::format("{} are free in this folder", bytes_text(free_bytes)),
                   "make room, or write the trace elsewhere with -o");
  return good("room", fmt::format("{} are free in this folder for the trace", bytes_text(free_bytes)));
}

Finding access(const Target& target) {
  if (const auto obstacle = attach_obstacle(read_access_facts(target))) return problem("access", *obstacle);
  if (const auto shared = shared_memory_obstacle(target)) return problem("access", *shared);
  return good("access", "the kernel allows an attach");
}

Finding sites(const Target& target, const VmaList& maps, bool& gdb_needed) {
  ModuleMap modules;
  modules.update(target, maps.vmas);
  const auto plan = make_plan(target, modules, {});
  if (!plan) return problem("sites", plan.error());
  const auto watched = std::count_if(plan->sites.begin(), plan->sites.end(),
                                     [](const Site& site) { return site.watch != WatchKind::none; });
  if (watched == 0)
    return warning("sites", "no instruction was found that maps memory and can be watched",
                   "see whomap plan, which says why");
  const std::size_t without = sites_without_stub(*plan).size();
  gdb_needed = without > 0;
  const std::string how =
      gdb_needed ? fmt::format("{} of these by GDB only, there is no room for a stub", count_text(without))
                 : "all of these by the probe engine";
  return good("sites", fmt::format("{} that map memory, {} of them can be watched, {}",
                                   count_text(plan->sites.size(), "instruction"),
                                   count_text(static_cast<std::uint64_t>(watched)), how));
}

Finding seccomp(const Target& target) {
  constexpr int filter = 2;
  const auto status = read_status(target.pid());
  if (!status || status->seccomp.value_or(0) != filter) return good("seccomp", "no filter");
  return warning("seccomp", "there is a filter on its system calls, which whomap cannot judge beforehand",
                 "an attach makes sleeping threads call restart_syscall: be sure that the filter allows it");
}

Finding waiting_calls(const Target& target) {
  const AttachRisk risk = find_attach_risk(target);
  if (risk.none())
    return good("waiting", "no thread waits in a call that an attach interrupts (at this moment)");
  return warning(
      "waiting", risk_text(risk),
      "a program that goes on after EINTR is not harmed; trace --no-attach-risk refuses to attach");
}

/// The stubs' pages are mappings too.
Finding mappings(const VmaList& maps) {
  const auto most = number_in("/proc/sys/vm/max_map_count");
  const std::size_t count = maps.vmas.size();
  if (most && count + 16 > static_cast<std::size_t>(*most))
    return warning("mappings",
                   fmt::format("{} of {} (vm.max_map_count)", count_text(count),
                               count_text(static_cast<std::uint64_t>(*most))),
                   "trace with --no-stubs, which maps nothing in the process, or raise vm.max_map_count");
  return good("mappings", count_text(count, "mapping"));
}

Finding left_over(const Target& target) {
  const auto folder = state_folder();
  if (!folder) return warning("left-over", "not looked for without a state folder", folder.error().remedy);
  if (const auto foreign = find_foreign_stubs(target)) return problem("left-over", *foreign);
  const auto state = load_state(target.identity());
  if (state && !*state) return good("left-over", "no earlier trace left anything behind");
  if (const auto lock = lock_state(target.identity()); !lock) return problem("left-over", lock.error());
  if (!state) return problem("left-over", state.error());
  if ((*state)->jumps.empty() && (*state)->trap_handler == 0) {
    std::uint64_t bytes = 0;
    for (const PlacedMemory& each : (*state)->memory) bytes += each.size;
    return good("left-over", fmt::format("{} KiB of an earlier trace stay mapped, unused", bytes / 1024));
  }
  return warning("left-over", "an earlier trace was killed and has left its code changed",
                 fmt::format("whomap repair -p {}", target.pid()));
}

}  // namespace

std::vector<Finding> examine_machine(bool gdb_needed) {
  std::vector<Finding> findings{kernel(), gdb(gdb_needed)};
  if (findings.back().health == Health::good)
    if (auto tried = proof()) findings.push_back(std::move(*tried));
  for (Finding& each : std::vector{permission(), counters(), state_files(), room()})
    findings.push_back(std::move(each));
  return findings;
}

std::vector<Finding> examine_process(pid_t pid, bool& gdb_needed) {
  const auto target = Target::open(pid);
  if (!target) return {problem("process", target.error())};
  std::vector<Finding> findings{
      good("process", fmt::format("{}, {}, {}", target->identity().comm, target->identity().exe,
                                  count_text(target->threads().size(), "thread")))};
  findings.push_back(access(*target));
  if (findings.back().health == Health::problem) return findings;  // the rest needs that access
  const auto maps = read_maps(pid);
  if (!maps) {
    findings.push_back(problem("mappings", maps.error()));
    return findings;
  }
  for (Finding& each : std::vector{sites(*target, *maps, gdb_needed), seccomp(*target),
                                   waiting_calls(*target), mappings(*maps), left_over(*target)})
    findings.push_back(std::move(each));
  return findings;
}

}  // namespace whomap::cli
