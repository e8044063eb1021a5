// SPDX-License-Identifier: Apache-2.0
// Did a fix take effect? Judged by the stacks that a trace captured (design section 10), not by what a log
// says.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/verify/pattern.h"

namespace whomap {

enum class EffectKind {
  gone,     ///< no live growth comes from the stacks with this frame any more
  present,  ///< stacks with this frame map memory
};

/// What a traced report says about one expression.
struct EffectFinding {
  EffectKind kind = EffectKind::gone;
  std::string expression;
  std::uint64_t stacks = 0;  ///< that map memory and have a frame whose function or module matches
  std::uint64_t calls = 0;   ///< captured with them
  std::optional<std::uint64_t> growth_bytes;  ///< mapped by them during the trace and still mapped
  std::vector<std::string> examples;          ///< a few of the names that matched
};

/// How well the trace could see.
struct TraceSight {
  std::optional<double> seconds;
  std::optional<std::uint64_t> events;  ///< captured calls
  std::optional<std::uint64_t> lost;
  std::uint64_t stacks = 0;
  std::uint64_t truncated = 0;  ///< stacks with growth that end early: a frame may be in the missing part
};

struct EffectReport {
  TraceSight sight;
  std::vector<EffectFinding> findings;
};

struct EffectPattern {
  EffectKind kind = EffectKind::gone;
  NamePattern pattern;
};

/// `report_text` is a whomap-report. Errors: input_damaged, input_kind (another format or version).
Result<EffectReport> find_effects(std::string_view report_text, const std::vector<EffectPattern>& patterns);

enum class EffectState { passed, failed, unproven };

struct EffectVerdict {
  EffectState state = EffectState::unproven;
  std::string text;  ///< with the count of matching stacks, and whether the trace could have seen them
  std::string remedy;
};

/// `shown` is the same expression's finding in the trace of the unfixed variant, when there was one. That a
/// path is gone is only proven where the same trace, there, saw it; or where this one saw it and what it
/// mapped is unmapped.
EffectVerdict judge_effect(const EffectFinding& finding, const TraceSight& sight, const EffectFinding* shown);

}  // namespace whomap
