// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <fmt/format.h>

#include "core/plan/code_view.h"
#include "core/plan/make_plan.h"

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

/// What the process itself says of the site. A file is not trusted for anything that is put into code: a plan
/// that a human or an accident has changed would have whomap watch, or move, what is no call.
const Site* find_fresh(const Plan& fresh, const Site& site) {
  const auto found = std::find_if(fresh.sites.begin(), fresh.sites.end(), [&](const Site& each) {
    return each.watch != WatchKind::none && each.syscall_address == site.syscall_address &&
           each.return_address == site.return_address && each.kind == site.kind &&
           each.number == site.number && each.numbers == site.numbers;
  });
  return found == fresh.sites.end() ? nullptr : &*found;
}

}  // namespace

Result<Plan> rebase_plan(const Plan& plan, const Target& target, const ModuleMap& modules) {
  if (plan.machine != "x86_64") return mismatch(fmt::format("the plan is for {} code", plan.machine));
  auto pages = PageMap::open(target.pid(), plan.page_size);
  if (!pages) return tl::make_unexpected(pages.error());
  const bool same_process = plan.target == target.identity();
  const auto fresh = make_plan(target, modules, PlanOptions{plan.watched, {}});
  if (!fresh) return fresh;

  Plan result = *fresh;
  result.notes = plan.notes;  // of the modules that the plan was made of, which may be a choice
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
    if (site.watch != WatchKind::none) {
      const Site* const found_now = find_fresh(*fresh, site);
      if (found_now == nullptr)
        return mismatch(
            fmt::format("what the plan says of the site at {:#x} ({}+{:#x}) is not what is found there",
                        site.syscall_address, site.symbol.empty() ? "?" : site.symbol, site.symbol_offset));
      if (std::any_of(result.sites.begin(), result.sites.end(), [&](const Site& each) {
            return each.watch != WatchKind::none && each.syscall_address == site.syscall_address;
          }))
        return mismatch(fmt::format("the plan has the site at {:#x} twice", site.syscall_address));
      site = *found_now;
    } else {
      site.stub.possible = false;
    }
    site.id = static_cast<std::uint32_t>(result.sites.size());
    result.sites.push_back(std::move(site));
  }
  return result;
}

}  // namespace whomap
