// SPDX-License-Identifier: Apache-2.0
#include "core/stub/carriers.h"

#include <poll.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "core/process/memory.h"
#include "core/process/proc_ids.h"

namespace whomap {
namespace {

bool is_jump_in(pid_t pid, const std::vector<PlacedJump>& jumps) {
  return std::any_of(jumps.begin(), jumps.end(), [&](const PlacedJump& jump) {
    return read_bytes(pid, jump.address, jump.jump.size()) == jump.jump;
  });
}

bool has_stubs_in_its_code(pid_t pid, const StubState& state) {
  return is_jump_in(pid, state.jumps) || is_jump_in(pid, state.carried);
}

/// Those whose code is as it was not even where only they know: kept for a later repair.
Result<void> remember_carried(const TargetIdentity& target, const StubState& state) {
  auto saved = load_state(target);
  if (!saved) return tl::make_unexpected(saved.error());
  StubState kept = saved->value_or(StubState{});
  if (!*saved) {
    kept.target = state.target;
    kept.nonce = state.nonce;
    kept.memory = state.memory;
  }
  kept.carried = state.jumps;
  for (const PlacedJump& each : state.carried)
    if (std::none_of(kept.carried.begin(), kept.carried.end(),
                     [&](const PlacedJump& known) { return known.address == each.address; }))
      kept.carried.push_back(each);
  return save(kept);
}

Result<void> forget_carried(const TargetIdentity& target) {
  auto saved = load_state(target);
  if (!saved || !*saved || (*saved)->carried.empty()) return {};
  (*saved)->carried.clear();
  return save(**saved);
}

}  // namespace

std::vector<pid_t> find_carriers(const StubState& state) {
  std::vector<pid_t> carriers;
  for (const pid_t pid : proc_ids("/proc"))
    if (pid != state.target.pid && is_ours(pid, state)) carriers.push_back(pid);
  return carriers;
}

Result<Removed> remove_everywhere(const Target& target, const StubState& state,
                                  std::vector<RemovedFromCarrier>* children) {
  auto removed = remove_stubs(target, state);
  // A child that forks while this goes on has children that no list knows yet, and may have ended when it is
  // looked at: until none is found, twice.
  constexpr int most_looks = 40, pause_ms = 2;
  std::vector<pid_t> left;
  int looks_in_vain = 0;
  for (int looks = 0; looks < most_looks && looks_in_vain < 2; ++looks) {
    if (looks_in_vain != 0) ::poll(nullptr, 0, pause_ms);
    left.clear();
    bool got_on = false;
    for (const pid_t carrier : find_carriers(state)) {
      if (!has_stubs_in_its_code(carrier, state)) continue;
      const auto child = Target::open(carrier);
      auto from_child = child ? remove_stubs(*child, state) : tl::make_unexpected(child.error());
      const bool ended = !child || (!from_child && !child->check());
      const bool clean = !ended && from_child && !has_stubs_in_its_code(carrier, state);
      got_on = got_on || ended || clean;
      if (!ended && !clean) left.push_back(carrier);
      if (children != nullptr && (clean || (!ended && looks == 0)))
        children->push_back({carrier, std::move(from_child)});
    }
    looks_in_vain = got_on ? 0 : looks_in_vain + 1;
  }
  if (!removed) return removed;
  removed->carriers_left = std::move(left);
  const auto noted = removed->carriers_left.empty() ? forget_carried(target.identity())
                                                    : remember_carried(target.identity(), state);
  if (!noted) return tl::make_unexpected(noted.error());
  return removed;
}

std::optional<StubState> state_of_carrier(pid_t pid) {
  const auto folder = state_folder();
  if (!folder) return std::nullopt;
  std::error_code problem;
  for (const auto& entry : std::filesystem::directory_iterator(*folder, problem)) {
    if (entry.path().extension() != ".state") continue;
    auto state = read_state(entry.path().string());
    if (state && is_ours(pid, *state)) return std::move(*state);
  }
  return std::nullopt;
}

}  // namespace whomap
