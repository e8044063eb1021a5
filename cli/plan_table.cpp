// SPDX-License-Identifier: Apache-2.0
#include "cli/plan_table.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/match/quantity.h"
#include "core/process/syscalls.h"
#include "core/symbols/function_name.h"

namespace whomap::cli {
namespace {

std::string call_name(const Plan& plan, std::int64_t number) {
  for (const MemorySyscall& call : memory_syscalls)
    if (plan.machine == "x86_64" ? call.x86_64 == number : call.aarch64 == number)
      return std::string(call.name);
  return fmt::format("#{}", number);
}

std::string calls(const Plan& plan, const Site& site) {
  if (site.any_number) return site.numbers == plan.watched ? "any" : "any of";
  std::string names;
  for (const std::int64_t number : site.numbers)
    names += fmt::format("{}{}", names.empty() ? "" : ",", call_name(plan, number));
  return names;
}

const char* kind_name(NumberKind kind) {
  switch (kind) {
    case NumberKind::constant: return "constant";
    case NumberKind::caller_constant: return "by caller";
    case NumberKind::variable: return "variable";
  }
  return "?";
}

const char* watch_name(WatchKind watch) {
  switch (watch) {
    case WatchKind::return_breakpoint: return "at return";
    case WatchKind::paired_breakpoints: return "call+return";
    case WatchKind::none: return "-";
  }
  return "?";
}

std::string place(const Site& site) {
  if (site.symbol.empty()) return fmt::format("{:#x}", site.syscall_offset);
  return fmt::format("{}+{:#x}", printable(demangled(site.symbol)), site.symbol_offset);
}

std::string base_name(const std::string& path) {
  const auto slash = path.rfind('/');
  return printable(slash == std::string::npos ? path : path.substr(slash + 1));
}

}  // namespace

std::string plan_table(const Plan& plan) {
  std::string out;
  if (plan.target.pid != 0)
    out += fmt::format("Process {} ({}), {}\n", plan.target.pid, printable(plan.target.comm),
                       printable(plan.target.exe));
  std::string watched;
  for (const std::int64_t number : plan.watched)
    watched += fmt::format("{}{}", watched.empty() ? "" : ", ", call_name(plan, number));
  out += fmt::format("Watched: {}\n\n", watched);
  if (plan.sites.empty())
    out += "No instruction was found through which these calls can be made.\n";
  else
    out += fmt::format("{:>3}  {:<7} {:<10} {:<12} {:<18} {}\n", "#", "calls", "number", "watched",
                       "return address", "where");
  for (const Site& site : plan.sites) {
    const std::uint64_t address = site.return_address != 0 ? site.return_address : site.syscall_address;
    out += fmt::format("{:>3}  {:<7} {:<10} {:<12} {:<#18x} {}  {}\n", site.id, calls(plan, site),
                       kind_name(site.kind), watch_name(site.watch), address, base_name(site.module),
                       place(site));
    if (site.kind != NumberKind::constant || site.reason.find(';') != std::string::npos) {
      const std::string proof = site.proof ? fmt::format(" ({})", site.proof->instruction) : "";
      const std::string to =
          site.dispatcher.empty() ? "" : fmt::format("calls {}; ", printable(demangled(site.dispatcher)));
      out += fmt::format("     {}{}{}\n", to, printable(site.reason), proof);
    }
    if (site.watch != WatchKind::none)
      out +=
          fmt::format("     stub: {}, {}\n", site.stub.possible ? "yes" : "no", printable(site.stub.reason));
    if (site.observed)
      out += fmt::format("     hit {}{:.0f} times a second\n", site.observed->at_least ? "more than " : "",
                         site.observed->per_second);
  }
  const auto planned = std::count_if(plan.sites.begin(), plan.sites.end(),
                                     [](const Site& s) { return s.watch != WatchKind::none; });
  out += fmt::format("\n{}, {} of them watched.\n", count_text(plan.sites.size(), "site"), planned);
  if (!plan.observed_how.empty()) out += fmt::format("observed: {}\n", plan.observed_how);
  for (const std::string& note : plan.notes) out += fmt::format("note: {}\n", printable(note));
  return out;
}

}  // namespace whomap::cli
