// SPDX-License-Identifier: Apache-2.0
#include "core/verify/verdict.h"

#include <algorithm>

namespace whomap {

std::string_view name_of(VerdictClass verdict) {
  switch (verdict) {
    case VerdictClass::fixed: return "fixed";
    case VerdictClass::not_fixed: return "not-fixed";
    case VerdictClass::not_same_leak: return "not-same-leak";
    case VerdictClass::moved: return "moved";
    case VerdictClass::proves_nothing: return "proves-nothing";
    case VerdictClass::invalid: return "invalid";
    case VerdictClass::inconclusive: return "inconclusive";
    case VerdictClass::interrupted: return "interrupted";
  }
  return "inconclusive";
}

ExitStatus exit_status(VerdictClass verdict) {
  switch (verdict) {
    case VerdictClass::fixed: return ExitStatus::done;
    case VerdictClass::not_fixed:
    case VerdictClass::not_same_leak:
    case VerdictClass::moved:
    case VerdictClass::proves_nothing: return ExitStatus::negative;
    case VerdictClass::invalid: return ExitStatus::no_process;
    case VerdictClass::inconclusive: return ExitStatus::inconclusive;
    case VerdictClass::interrupted: return ExitStatus::interrupted;
  }
  return ExitStatus::inconclusive;
}

std::string_view name_of(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::anonymous: return "anonymous memory";
    case MemoryKind::file: return "file pages";
    case MemoryKind::shmem: return "shared memory";
    case MemoryKind::page_tables: return "page tables";
    case MemoryKind::held: return "memory in memfds, open tmpfs files and SysV segments";
  }
  return "memory";
}

const Trend* Judgement::trend(MemoryKind kind) const {
  const auto found =
      std::find_if(trends.begin(), trends.end(), [&](const KindTrend& each) { return each.kind == kind; });
  return found == trends.end() ? nullptr : &found->trend;
}

}  // namespace whomap
