// SPDX-License-Identifier: Apache-2.0
#include "core/match/signatures.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>
#include <re2/re2.h>

#include "core/match/culprit.h"
#include "core/regions/classes.h"

namespace whomap {
namespace {

bool holds(const std::vector<std::string>& list, std::string_view text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

Advice advice_of(const KnownCause& known) {
  return {known.id, known.cause, known.remedy, known.hazard, known.source, known.certainty};
}

void surest_first(std::vector<Advice>& advice) {
  std::stable_sort(advice.begin(), advice.end(),
                   [](const Advice& left, const Advice& right) { return left.certainty < right.certainty; });
}

enum class Fit { no, possible, yes };

Fit fits(const FramePattern& pattern, const Frame& frame, bool nameless_possible) {
  if (pattern.module && !re2::RE2::PartialMatch(module_name(frame), *pattern.module)) return Fit::no;
  if (!pattern.function) return Fit::yes;
  if (!frame.function) return nameless_possible && pattern.module ? Fit::possible : Fit::no;
  return re2::RE2::PartialMatch(*frame.function, *pattern.function) ? Fit::yes : Fit::no;
}

/// The patterns in order, each at the first frame that fits. With `possible`, frames without names may stand
/// in.
bool in_order(const Signature& signature, const Stack& stack, bool possible) {
  std::size_t next = 0;
  for (const Frame& frame : stack.frames) {
    if (next == signature.frames.size()) break;
    const Fit fit = fits(signature.frames[next], frame, signature.nameless_possible);
    if (fit == Fit::yes || (possible && fit == Fit::possible)) ++next;
  }
  return next == signature.frames.size();
}

/// yes: every frame is there by name. possible: some stand without names, or one without a name may be what
/// must not be there.
Fit fits(const Signature& signature, const Stack& stack) {
  bool sure = true;
  for (const Frame& frame : stack.frames)
    for (const FramePattern& pattern : signature.without)
      switch (fits(pattern, frame, signature.nameless_possible)) {
        case Fit::yes: return Fit::no;
        case Fit::possible: sure = false; break;
        case Fit::no: break;
      }
  if (in_order(signature, stack, false)) return sure ? Fit::yes : Fit::possible;
  return signature.nameless_possible && in_order(signature, stack, true) ? Fit::possible : Fit::no;
}

std::string_view nameless_module(const Signature& signature, const Stack& stack, std::string& holder) {
  for (const Frame& frame : stack.frames)
    for (const auto* list : {&signature.frames, &signature.without})
      for (const FramePattern& pattern : *list)
        if (fits(pattern, frame, true) == Fit::possible) {
          holder = module_name(frame);
          return holder;
        }
  return "the library";
}

std::string range_text(const VersionCondition& version) {
  if (version.from.empty()) return fmt::format("versions up to {}", version.to);
  if (version.to.empty()) return fmt::format("versions from {}", version.from);
  return version.from == version.to ? "version " + version.from
                                    : fmt::format("versions {} to {}", version.from, version.to);
}

/// nullopt: the version is known and is another.
std::optional<std::string> version_text(const VersionCondition& version, const Stack& stack) {
  std::string found;
  if (version.of)
    for (const Frame& frame : stack.frames)
      if (re2::RE2::PartialMatch(frame.module, *version.of, &found) && !found.empty()) break;
  if (found.empty()) return fmt::format(" The version is unknown; this is about {}.", range_text(version));
  const bool below = !version.from.empty() && version_less(found, version.from);
  // "1.20" ends with 1.20.9, not before 1.20.1.
  const bool above =
      !version.to.empty() && version_less(version.to, found) && !found.starts_with(version.to + ".");
  if (below || above) return std::nullopt;
  return fmt::format(" The version is {}, and this is about {}.", found, range_text(version));
}

}  // namespace

bool version_less(std::string_view left, std::string_view right) {
  const auto number = [](std::string_view& text) {
    unsigned long value = 0;
    const auto [rest, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    text.remove_prefix(problem == std::errc{} ? static_cast<std::size_t>(rest - text.data()) : text.size());
    if (text.starts_with('.')) text.remove_prefix(1);
    return value;
  };
  while (!left.empty() || !right.empty()) {
    const unsigned long one = number(left);
    const unsigned long other = number(right);
    if (one != other) return one < other;
  }
  return false;
}

std::vector<Advice> known_causes(const std::vector<Signature>& signatures, const Stack& stack,
                                 std::string_view stack_class, std::span<const std::string> region_kinds) {
  std::vector<Advice> advice;
  for (const Signature& signature : signatures) {
    if (!signature.classes.empty() && !holds(signature.classes, stack_class)) continue;
    if (!signature.region_kinds.empty() &&
        std::none_of(region_kinds.begin(), region_kinds.end(),
                     [&](const std::string& kind) { return holds(signature.region_kinds, kind); }))
      continue;
    const Fit fit = fits(signature, stack);
    if (fit == Fit::no) continue;
    const auto version = signature.version ? version_text(*signature.version, stack) : std::string();
    if (!version) continue;
    if (fit == Fit::yes) {
      advice.push_back(advice_of(signature));
      advice.back().cause += *version;
      continue;
    }
    // Without the deciding frame nothing is advised, and what is said is a step less sure.
    std::string holder;
    advice.push_back(
        {signature.id,
         fmt::format("Cannot tell: frames of {} have no names, so this is only possible: {}{} Its symbols "
                     "would decide.",
                     nameless_module(signature, stack, holder), signature.cause, *version),
         "", "", signature.source, signature.certainty == "A" ? "B" : "C"});
  }
  surest_first(advice);
  return advice;
}

std::vector<Advice> known_region_causes(const std::vector<RegionSignature>& signatures, const Region& region,
                                        std::string_view kind) {
  const auto part = [&](std::optional<std::uint64_t> bytes) {
    const std::uint64_t resident = region.rss.value_or(0);
    return bytes && resident != 0 ? static_cast<double>(*bytes) / static_cast<double>(resident) : 0;
  };
  std::vector<Advice> advice;
  for (const RegionSignature& each : signatures) {
    if (each.name && !re2::RE2::PartialMatch(region.vma.name, *each.name)) continue;
    if (!each.kinds.empty() && !holds(each.kinds, kind)) continue;
    if (!each.flag.empty() && !has_flag(region, each.flag)) continue;
    if (each.file_pages && !holds_file_pages(region)) continue;
    if (each.huge_pages && part(region.anon_huge_pages) < *each.huge_pages) continue;
    if (each.lazy_free && part(region.lazy_free) < *each.lazy_free) continue;
    advice.push_back(advice_of(each));
  }
  surest_first(advice);
  return advice;
}

std::vector<Advice> known_process_causes(const std::vector<ProcessSignature>& signatures,
                                         const Snapshot& snapshot, std::string_view verdict) {
  std::vector<Advice> advice;
  for (const ProcessSignature& each : signatures) {
    if (!holds(each.verdicts, verdict)) continue;
    const bool mapped =
        std::any_of(snapshot.regions.begin(), snapshot.regions.end(), [&](const Region& region) {
          const std::string_view name = region.vma.name;
          const std::string_view file = name.substr(name.rfind('/') + 1);
          return re2::RE2::PartialMatch(re2::StringPiece(file.data(), file.size()), *each.mapped);
        });
    if (mapped) advice.push_back(advice_of(each));
  }
  surest_first(advice);
  return advice;
}

}  // namespace whomap
