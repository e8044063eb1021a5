// SPDX-License-Identifier: Apache-2.0
#include "core/symbols/tail_calls.h"

#include <algorithm>
#include <optional>

#include "core/symbols/function_name.h"

namespace whomap {
namespace {

/// Where in `symbols` the function begins that a call in `unit` names. `same_image`: the unit is of
/// `symbols`.
std::optional<std::uint64_t> entry_of(ImageSymbols& symbols, CompileUnit& unit, Dwarf_Die function,
                                      bool same_image) {
  if (same_image) {
    Dwarf_Addr entry = 0;
    if (dwarf_entrypc(&function, &entry) == 0) return entry;
    if (const auto in_unit = unit.entry_of(function)) return in_unit;
  }
  const char* const name = linker_name(&function);
  return name != nullptr ? symbols.table().address_of(name) : std::nullopt;
}

/// All ways of tail calls from one function to another, reduced to what they have in common.
class Search {
 public:
  Search(ImageSymbols& symbols, std::uint64_t wanted) : symbols_(symbols), wanted_(wanted) {}

  /// Outermost jump first.
  std::vector<std::uint64_t> from(std::uint64_t entry) {
    visit(entry);
    if (failed_ || !found_) return {};
    std::vector<std::uint64_t> common = prefix_;
    common.insert(common.end(), suffix_.begin(), suffix_.end());
    return common;
  }

 private:
  void visit(std::uint64_t entry);
  void add_way();

  ImageSymbols& symbols_;
  std::uint64_t wanted_;
  std::vector<std::uint64_t> way_;      ///< jumps from the first function to the one being visited
  std::vector<std::uint64_t> entered_;  ///< functions on the way, so that recursion ends
  bool found_ = false;
  bool failed_ = false;
  std::vector<std::uint64_t> prefix_, suffix_;  ///< common to all ways; one way alone is all prefix
  int visits_ = 0;
};

void Search::add_way() {
  if (!found_) {
    found_ = true;
    prefix_ = way_;
    return;
  }
  // The ways differ somewhere in between: nothing is said about that part.
  std::vector<std::uint64_t> all = prefix_;
  all.insert(all.end(), suffix_.begin(), suffix_.end());
  const std::size_t shorter = std::min(prefix_.size(), way_.size());
  const auto differ =
      std::mismatch(prefix_.begin(), prefix_.begin() + static_cast<std::ptrdiff_t>(shorter), way_.begin());
  const auto head = static_cast<std::size_t>(differ.first - prefix_.begin());
  std::size_t tail = 0;
  while (tail + head < std::min(all.size(), way_.size()) &&
         all[all.size() - 1 - tail] == way_[way_.size() - 1 - tail])
    ++tail;
  if (!suffix_.empty()) tail = std::min(tail, suffix_.size());
  prefix_.resize(head);
  suffix_.assign(all.end() - static_cast<std::ptrdiff_t>(tail), all.end());
}

void Search::visit(std::uint64_t entry) {
  constexpr int visit_limit = 256;
  if (entry == wanted_) return add_way();
  if (std::find(entered_.begin(), entered_.end(), entry) != entered_.end()) return;
  CompileUnit* const unit = symbols_.units()->find(entry);
  const auto function = unit != nullptr ? unit->function_at(entry) : std::nullopt;
  if (++visits_ > visit_limit || !function) {
    failed_ = true;
    return;
  }
  entered_.push_back(entry);
  for (const CallSite& call : unit->calls_of(function->function)) {
    if (failed_) break;
    if (!call.tail) continue;
    const auto next = call.callee ? entry_of(symbols_, *unit, *call.callee, true) : std::nullopt;
    if (!next) {
      failed_ = true;  // it might lead to the wanted function too
      break;
    }
    way_.push_back(call.return_address);
    visit(*next);
    way_.pop_back();
  }
  entered_.pop_back();
}

}  // namespace

std::vector<std::uint64_t> tail_calls_between(ImageSymbols& caller, std::uint64_t return_address,
                                              ImageSymbols& callee, std::uint64_t address) {
  const auto running = callee.function_entry(address);
  CompileUnit* const unit = caller.units() != nullptr ? caller.units()->find(return_address - 1) : nullptr;
  const auto function = unit != nullptr ? unit->function_at(return_address - 1) : std::nullopt;
  if (!running || !function || callee.units() == nullptr) return {};
  for (const CallSite& call : unit->calls_of(function->function)) {
    if (call.return_address != return_address || call.tail || !call.callee) continue;
    const auto called = entry_of(callee, *unit, *call.callee, &caller == &callee);
    if (!called || *called == *running) return {};
    std::vector<std::uint64_t> jumps = Search(callee, *running).from(*called);
    std::reverse(jumps.begin(), jumps.end());
    return jumps;
  }
  return {};
}

}  // namespace whomap
