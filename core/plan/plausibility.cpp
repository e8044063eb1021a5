// SPDX-License-Identifier: Apache-2.0
#include "core/plan/plausibility.h"

#include <algorithm>

namespace whomap {
namespace {

/// The lowest value among the 526 system call instructions of Debian 12's libc, where symbols and unwind
/// tables say what they are, is 0.5; bytes inside a constant or another instruction give 0 to 0.2.
constexpr double convincing_convergence = 0.4;

/// About 15 % of random bytes begin an instruction that is undecodable or odd, so 20 instructions without one
/// are data with a chance of a few per cent.
constexpr std::size_t instructions_before = 16;
constexpr std::size_t instructions_after = 6;

}  // namespace

double convergence(const CodeView& view, const InstructionSet& set, std::uint64_t address) {
  const auto area = view.area(address);
  if (!area) return 0;
  const std::uint64_t reach = std::min<std::uint64_t>(std::uint64_t{2} * set.longest, address - area->start);
  unsigned tried = 0;
  unsigned arrived = 0;
  for (std::uint64_t back = set.alignment; back <= reach; back += set.alignment) {
    ++tried;
    if (decodes_to(view, set, address - back, address)) ++arrived;
  }
  return tried == 0 ? 1 : static_cast<double>(arrived) / tried;
}

bool looks_like_code(const CodeView& view, const InstructionSet& set, const FunctionCode& code,
                     std::uint64_t address) {
  const std::ptrdiff_t found = code.index_of(address);
  if (found < 0 || convergence(view, set, address) < convincing_convergence) return false;
  const auto index = static_cast<std::size_t>(found);
  for (std::size_t i = index; i > 0 && index - i < instructions_before; --i) {
    const Instruction& each = code.instructions[i - 1];
    if (each.next() != code.instructions[i].address || each.unusual) return false;
  }
  for (std::size_t i = index + 1; i < code.instructions.size() && i - index <= instructions_after; ++i) {
    const Instruction& each = code.instructions[i];
    if (each.address != code.instructions[i - 1].next() || each.unusual) return false;
    if (each.flow != Flow::next) break;  // what follows a jump need not be code
  }
  return true;
}

}  // namespace whomap
