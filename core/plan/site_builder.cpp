// SPDX-License-Identifier: Apache-2.0
#include "core/plan/site_builder.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/plan/conditions.h"

namespace whomap {
namespace {

bool contains(const std::vector<std::int64_t>& numbers, std::int64_t number) {
  return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
}

/// Addresses, names and code bytes: the same for both kinds.
Site place(const ModuleCode& module, const CodeBounds& bounds, std::uint64_t address, std::uint64_t next) {
  constexpr std::uint64_t bytes_before = 8;
  constexpr std::size_t bytes_in_all = 20;
  Site site;
  site.module = module.path();
  site.build_id = module.build_id();
  site.symbol = bounds.name;
  site.symbol_offset = bounds.entry_known ? address - bounds.range.start : 0;
  site.entry = bounds.entry_known ? bounds.range.start : 0;
  site.syscall_address = address;
  site.return_address = next;
  const auto link_time = [&](std::uint64_t run_time) { return run_time == 0 ? 0 : run_time - module.bias(); };
  site.entry_offset = link_time(site.entry);
  site.syscall_offset = link_time(address);
  site.return_offset = link_time(next);
  const auto area = module.view().area(address);
  const std::uint64_t first = area ? area->start : address;
  site.code_address = address - std::min(bytes_before, address - first);
  site.code.resize(bytes_in_all);
  site.code.resize(module.view().read(site.code_address, site.code));
  return site;
}

void prove(Site& site, const ModuleCode& module, const Value& number) {
  if (number.proof() != 0) site.proof = NumberProof{number.proof(), module.text(number.proof())};
}

std::string origin(const ModuleCode& module, const Value& number) {
  switch (number.kind()) {
    case Value::Kind::constants: return "one of a few numbers";
    case Value::Kind::entry_register:
      return fmt::format("the number comes from {} at the function's entry",
                         module.set().register_name(number.entry_register()));
    case Value::Kind::entry_stack:
      return fmt::format("the number comes from the stack, {} at the function's entry + {}",
                         module.set().register_name(module.set().stack_pointer), number.offset());
    default: return "the number is only known at run time";
  }
}

}  // namespace

std::optional<Site> site_of(const ModuleCode& module, const CodeSite& found,
                            const std::vector<std::int64_t>& watched) {
  Site site = place(module, found.bounds, found.address, found.next);
  const Value& number = found.number;
  if (number.kind() == Value::Kind::constants) {
    for (const std::int64_t each : number.constants())
      (contains(watched, each) ? site.numbers : site.other_numbers).push_back(each);
    if (site.numbers.empty()) return std::nullopt;
  } else {
    site.numbers = watched;
    site.any_number = true;
  }
  prove(site, module, number);
  if (number.single()) {
    site.kind = NumberKind::constant;
    site.number = number.single();
    site.watch = WatchKind::return_breakpoint;
    site.reason = "the number is always the same: one stop, at the return";
  } else {
    site.kind = NumberKind::variable;
    site.condition_at_syscall = condition_at_syscall(module.set(), site.numbers);
    site.condition_at_entry = condition_at_entry(module.set(), number, site.numbers);
    site.watch = WatchKind::paired_breakpoints;
    site.reason = origin(module, number);
  }
  if (found.entry_jump)
    site.reason += fmt::format("; entry was patched at run time (jmp to {:#x})", *found.entry_jump);
  else if (found.patched)
    site.reason += "; the function was changed at run time";
  if (found.bounds.entry_known && found.bounds.entry_by_call)
    site.reason += "; the function's start is known from calls to it";
  if (found.own_number && found.own_number != number.single())
    site.reason += fmt::format("; before that its number was {}", *found.own_number);
  if (!found.bounds.entry_known)
    site.reason +=
        fmt::format("; no function boundary is known here, decoded from {:#x}", found.bounds.range.start);
  if (found.doubtful) {
    site.watch = WatchKind::none;
    site.reason = fmt::format("more likely data than code; {}", site.reason);
  }
  return site;
}

std::optional<Site> site_of(const ModuleCode& module, const DispatcherCall& call,
                            const std::vector<std::int64_t>& watched) {
  const auto number = call.number.single();
  if (!number || !contains(watched, *number)) return std::nullopt;
  Site site = place(module, call.bounds, call.address, call.next);
  site.kind = NumberKind::caller_constant;
  site.number = number;
  site.numbers = {*number};
  site.dispatcher = call.dispatcher;
  prove(site, module, call.number);
  site.watch = WatchKind::none;
  site.reason = call.tail_jump ? "tail jump, returns to its caller's caller; seen at the dispatcher"
                               : "seen at the dispatcher";
  return site;
}

}  // namespace whomap
