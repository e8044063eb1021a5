// SPDX-License-Identifier: Apache-2.0
#include "core/plan/code_sites.h"

#include <algorithm>
#include <array>
#include <map>

#include "core/plan/number_flow.h"
#include "core/plan/plausibility.h"
#include "core/plan/prefixes.h"
#include "core/plan/references.h"

namespace whomap {
namespace {

struct FunctionHits {
  CodeBounds bounds;
  std::vector<std::uint64_t> addresses;
};

/// The interiors of these functions: a jump to an entry is a call, one to any other place is a path that the
/// function itself does not show (GCC moves unlikely parts to .text.unlikely, from where they jump back).
std::vector<AddressRange> interiors(const std::map<std::uint64_t, FunctionHits>& functions) {
  std::vector<AddressRange> ranges;
  for (const auto& [start, function] : functions) {
    AddressRange inside{start + 1, function.bounds.range.end};
    if (!ranges.empty()) inside.start = std::max(inside.start, ranges.back().end);
    if (inside.start < inside.end) ranges.push_back(inside);
  }
  return ranges;
}

/// The instruction that holds the syscall bytes at `place` may begin with prefixes.
std::uint64_t instruction_start(const ModuleCode& module, std::uint64_t place) {
  if (&module.set() != &x86_64 || module.is_instruction(place)) return place;
  for (std::uint64_t back = 1; back <= most_prefixes; ++back) {
    std::array<std::uint8_t, 1> byte{};
    if (module.view().read(place - back, byte) != 1 || !is_ignored_prefix(byte[0])) break;
    if (module.is_instruction(place - back)) return place - back;
  }
  return place;
}

}  // namespace

CodeSites find_code_sites(ModuleCode& module) {
  CodeSites result;
  const std::vector<std::uint64_t> places = find_system_call_bytes(module.view(), module.set());
  module.find_called_entries(places);
  std::map<std::uint64_t, FunctionHits> functions;
  for (const std::uint64_t place : places) {
    const std::uint64_t address = instruction_start(module, place);
    const auto bounds = module.bounds(address);
    if (!bounds || !module.is_instruction(address)) {
      ++result.rejected;
      continue;
    }
    FunctionHits& function = functions[bounds->range.start];
    function.bounds = *bounds;
    function.addresses.push_back(address);
  }
  if (functions.empty()) return result;

  std::map<std::uint64_t, std::vector<std::uint64_t>> entered;  // by function start
  for (const Reference& each : find_references(module, {.targets = interiors(functions), .branches = true})) {
    if (each.kind != Reference::Kind::jump && each.kind != Reference::Kind::branch) continue;
    const auto function = std::prev(functions.upper_bound(each.target));
    if (!function->second.bounds.range.contains(each.address))
      entered[function->first].push_back(each.target);
  }

  for (const auto& [start, function] : functions) {
    const FunctionCode& code = module.code(function.bounds);
    const NumberFlow flow(code, module.set(), entered[start]);
    for (const std::uint64_t address : function.addresses) {
      const std::ptrdiff_t index = code.index_of(address);
      if (index < 0 || code.instructions[static_cast<std::size_t>(index)].flow != Flow::system_call) {
        ++result.rejected;
        continue;
      }
      CodeSite site;
      site.address = address;
      site.next = code.instructions[static_cast<std::size_t>(index)].next();
      site.bounds = function.bounds;
      site.number = flow.before(address).registers[module.set().number_register];
      site.entry_jump = code.entry_jump;
      site.patched = !code.patched.empty();
      if (site.patched) {
        const FunctionCode original =
            decode_original(module.view(), module.set(), function.bounds.range, function.bounds.entry_known);
        site.own_number = NumberFlow(original, module.set(), entered[start])
                              .before(address)
                              .registers[module.set().number_register]
                              .single();
      }
      if (site.bounds.entry_by_call && !flow.reached_from_entry(address)) site.bounds.entry_known = false;
      if (!site.bounds.entry_known || site.bounds.entry_by_call)
        site.doubtful = !looks_like_code(module.view(), module.set(), code, address);
      result.sites.push_back(std::move(site));
    }
  }
  std::sort(result.sites.begin(), result.sites.end(),
            [](const CodeSite& a, const CodeSite& b) { return a.address < b.address; });
  return result;
}

}  // namespace whomap
