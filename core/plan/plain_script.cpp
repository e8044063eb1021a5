// SPDX-License-Identifier: Apache-2.0
#include "core/plan/plain_script.h"

#include <cmath>

#include <fmt/format.h>

#include "core/base/version.h"
#include "core/process/syscalls.h"

namespace whomap {
namespace {

constexpr std::string_view heading =
    R"gdb(# Process {pid} ({comm}); written by whomap {version} as a script for a GDB without Python.
# Run it as:   gdb -nx -batch -x THIS_FILE > gdb.log
# and then:    whomap import --from gdb-log gdb.log -o gdb.trace; whomap match gdb.trace REGIONS
# where REGIONS holds what `cat /proc/{pid}/smaps` (or pmap -X {pid}) printed before and after, in one file.
# The log has for each call its number, thread and arguments, GDB's backtrace, and "Syscall returned: rax = 0x...".
#
# What this does to the process, so that you can decide:
#  - GDB reads the symbols of all libraries while the process stands still (about a second for large ones).
#  - At every hit all threads stop while GDB prints a backtrace: a few milliseconds each. At more than
#    some hundred calls a second the process crawls.
#  - Ordinary breakpoints are in its code meanwhile. Never kill this GDB with -9 or TERM (timeout does that): a
#    thread that reaches one of them, or has just reached it, would end the process.
#  - Ctrl-C at this GDB sends SIGINT to the process. To end early: kill -HUP the GDB.

set pagination off
set confirm off
set width 0
set auto-load no
set libthread-db-search-path /proc/whomap-none
set print thread-events off
set print inferior-events off
set debuginfod enabled off
set breakpoint pending off
handle all nostop noprint pass

# The time limit is looked at at each hit (see whomap_returned below), where everything stands still. This is for the
# case that no hit comes any more: {grace} s later HUP makes GDB detach, between two events. (TERM would be in the middle of
# one, and has ended processes.) Should it leave the SIGSTOP behind with which it stops threads, SIGCONT undoes that.
# Both only as long as the two process ids mean the same processes (start times compared).
shell g=$PPID; t={pid}; s=$(cut -d' ' -f22 /proc/$g/stat); (same() {{ [ "$(cut -d' ' -f22 /proc/$g/stat 2>/dev/null)" = "$s" ]; }}; n=0; while same && [ $n -lt {last_seconds} ]; do sleep 1; n=$((n+1)); done; if same; then kill -HUP $g; n=0; while same && [ $n -lt 100 ]; do sleep 0.1; n=$((n+1)); done; if [ "$(sed 's/.*) //' /proc/$t/stat 2>/dev/null | cut -d' ' -f20)" = {start_time} ] && grep -q '^State:.T (' /proc/$t/status; then kill -CONT $t; fi; fi) >/dev/null 2>&1 &

# GDB would end a process that it is attached to already before it attaches again.
if $_thread != 0
  echo whomap: this GDB has a process already: start it without -p, or detach first\n
  detach
  quit 1
end
attach {pid}
set $whomap_hits = 0

# Called at each return: who called, and what came back.
define whomap_returned
  bt
  printf "Syscall returned: rax = 0x%012lx\n", $rax
  set $whomap_hits = $whomap_hits + 1
  # GDB's own age in hundredths of a second, from /proc/uptime and field 22 of its /proc/PID/stat.
  shell [ $(( $(sed 's/\.\(..\).*/\1/' /proc/uptime) - $(cut -d' ' -f22 /proc/$PPID/stat) )) -lt {hundredths} ]
  if $_shell_exitcode != 0{or_hits}
    detach
    quit
  end
)gdb";

constexpr std::string_view after_definition = R"(end

)";

/// The arguments are still in their registers at the return: the syscall instruction changes rax, rcx and r11
/// only.
constexpr std::string_view print_arguments =
    R"(  printf " thread %d args 0x%lx 0x%lx 0x%lx 0x%lx 0x%lx 0x%lx\n", $_thread, $rdi, $rsi, $rdx, $r10, $r8, $r9
)";

std::string where(const Site& site) {
  return fmt::format("{} {}+{:#x}", printable(site.module),
                     printable(site.symbol.empty() ? "?" : site.symbol),
                     site.symbol.empty() ? site.syscall_offset : site.symbol_offset);
}

std::string constant_site(const Site& site) {
  const std::int64_t number = site.number.value_or(-1);
  const MemorySyscall* const call = memory_syscall(number);
  return fmt::format(
      "# {}: {}, always call {} ({}). At the return address everything is in registers.\n"
      "break *{:#x}\ncommands\n  silent\n  printf \"Syscall number {}\"\n{}  whomap_returned\n  "
      "continue\nend\n\n",
      site.id, where(site), number, call != nullptr ? call->name : "?", site.return_address, number,
      print_arguments);
}

/// The return is awaited by a breakpoint for that thread alone: other threads pass the same address.
std::string variable_site(const Site& site) {
  return fmt::format(
      "# {}: {}, the call's number is only known when it is made.\n"
      "break *{:#x} if {}\ncommands\n  silent\n"
      "  eval \"set $whomap_number_%d = %ld\", $_thread, $rax\n"
      "  eval \"tbreak *{:#x} thread %d\", $_thread\n"
      "  commands\n    silent\n"
      "    eval \"printf \\\"Syscall number %%ld\\\", $whomap_number_%d\", $_thread\n  {}"
      "    whomap_returned\n    continue\n  end\n  continue\nend\n\n",
      site.id, where(site), site.syscall_address, site.condition_at_syscall, site.return_address,
      print_arguments);
}

}  // namespace

std::string plain_gdb_script(const Plan& plan, const PlainScriptOptions& options) {
  constexpr int grace_seconds = 3;
  const std::string or_hits =
      options.max_hits ? fmt::format(" || $whomap_hits >= {}", *options.max_hits) : "";
  std::string text = fmt::format(
      heading, fmt::arg("pid", plan.target.pid), fmt::arg("comm", printable(plan.target.comm)),
      fmt::arg("version", WHOMAP_VERSION), fmt::arg("start_time", plan.target.start_time),
      fmt::arg("grace", grace_seconds),
      fmt::arg("last_seconds", static_cast<std::uint64_t>(std::ceil(options.seconds)) + grace_seconds),
      fmt::arg("hundredths", static_cast<std::uint64_t>(std::ceil(options.seconds * 100))),
      fmt::arg("or_hits", or_hits));
  text += after_definition;
  for (const Site& site : plan.sites) {
    if (site.watch == WatchKind::return_breakpoint) text += constant_site(site);
    if (site.watch == WatchKind::paired_breakpoints) text += variable_site(site);
  }
  text += "continue\n# Here the process has ended, or stopped for another reason.\nquit\n";
  return text;
}

}  // namespace whomap
