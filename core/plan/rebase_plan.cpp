// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <fmt/format.h>

#include "core/plan/code_view.h"
#include "core/plan/make_plan.h"
#include "core/plan/prefixes.h"

namespace whomap {
namespace {

/// The mapped module that has the site's build-id; without a build-id, the one of the same path.
const Module* module_of(const Site& site, const ModuleMap& modules) {
  const Module* by_build_id = nullptr;
  for (const Module& module : modules.modules()) {
    if (module.executable.empty()) continue;
    if (site.build_id.empty()
            ? module.image->build_id().empty() && printable(module.path) == printable(site.module)
            : module.image->build_id() == site.build_id) {
      if (printable(module.path) == printable(site.module)) return &module;
      if (by_build_id == nullptr) by_build_id = &module;
    }
  }
  return by_build_id;
}

tl::unexpected<Error> mismatch(std::string what) {
  return fail(ErrorCode::plan_mismatch, std::move(what), "make a new plan with 'whomap plan'");
}

/// A breakpoint anywhere else than at a syscall instruction and right behind it would break the program, so a
/// plan that a human or an accident has changed is checked against the code it carries.
bool watches_the_call(const Site& site) {
  if (site.watch == WatchKind::none) return true;
  constexpr std::uint64_t opcode = 2;  // 0f 05, and prefixes before it
  if (site.syscall_address < site.code_address || site.return_address < site.syscall_address) return false;
  const std::uint64_t begin = site.syscall_address - site.code_address;
  const std::uint64_t end = site.return_address - site.code_address;
  if (end - begin < opcode || end - begin > opcode + most_prefixes || end > site.code.size()) return false;
  const auto at = [&](std::uint64_t index) { return site.code.begin() + static_cast<std::ptrdiff_t>(index); };
  return std::all_of(at(begin), at(end - opcode), is_ignored_prefix) && site.code[end - 2] == 0x0f &&
         site.code[end - 1] == 0x05;
}

/// Is the code that a stub would take over where the plan says, right before the call?
bool is_at_the_call(const Site& site, const CodeView& view) {
  constexpr std::uint8_t jump_length = 5;
  const StubRoom& room = site.stub;
  std::vector<std::uint8_t> found(room.code.size());
  found.resize(view.read(room.address, found));
  return found == room.code && room.length >= jump_length && room.length <= room.code.size() &&
         room.address + room.code.size() == site.syscall_address;
}

}  // namespace

Result<Plan> rebase_plan(const Plan& plan, const Target& target, const ModuleMap& modules) {
  if (plan.machine != "x86_64") return mismatch(fmt::format("the plan is for {} code", plan.machine));
  auto pages = PageMap::open(target.pid(), plan.page_size);
  if (!pages) return tl::make_unexpected(pages.error());
  const bool same_process = plan.target == target.identity();

  Plan result = plan;
  result.target = target.identity();
  result.sites.clear();
  for (Site site : plan.sites) {
    const Module* const module = module_of(site, modules);
    std::uint64_t bias = 0;
    CodeView view;
    if (module != nullptr) {
      bias = module->bias;
      view = CodeView::of_module(target.pid(), *module, &*pages);
    } else if (same_process) {
      view = CodeView::of_memory(target.pid(), {{site.code_address, site.code_address + site.code.size()}},
                                 *pages);
    } else if (site.build_id.empty() && site.module == "[anon]") {
      result.notes.push_back(
          fmt::format("the site at {:#x} is in memory without a file, which another process does not have",
                      site.syscall_address));
      continue;
    } else {
      return mismatch(fmt::format("process {} has no module {} with build-id {}", target.pid(), site.module,
                                  site.build_id.empty() ? "(none)" : site.build_id));
    }
    const std::uint64_t moved = bias - (site.syscall_address - site.syscall_offset);
    const auto move = [&](std::uint64_t& address) {
      if (address != 0) address += moved;
    };
    move(site.entry);
    move(site.syscall_address);
    move(site.return_address);
    move(site.code_address);
    move(site.stub.address);
    if (site.proof) move(site.proof->address);
    std::vector<std::uint8_t> found(site.code.size());
    found.resize(view.read(site.code_address, found));
    if (found != site.code || site.code.empty())
      return mismatch(fmt::format("the code of {} at {:#x} ({}+{:#x}) differs from the plan's", site.module,
                                  site.syscall_address, site.symbol.empty() ? "?" : site.symbol,
                                  site.symbol_offset));
    if (!watches_the_call(site))
      return mismatch(
          fmt::format("the plan's addresses for the site at {:#x} do not belong to a system call there",
                      site.syscall_address));
    if (site.stub.possible && !is_at_the_call(site, view)) {
      site.stub.possible = false;
      site.stub.reason = "the code before the call differs from the plan's";
    }
    site.id = static_cast<std::uint32_t>(result.sites.size());
    result.sites.push_back(std::move(site));
  }
  return result;
}

}  // namespace whomap
