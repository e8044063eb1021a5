// SPDX-License-Identifier: Apache-2.0
#include "core/plan/module_code.h"

#include <algorithm>
#include <array>

#include "core/plan/references.h"

namespace whomap {
namespace {

/// Without any boundary, decoding starts this far before an address: enough for x86 decoding to fall into
/// step, little enough to be fast in areas of many MiB.
constexpr std::uint64_t sweep_before = 1024;
constexpr std::uint64_t sweep_after = 256;

bool runs_on(const Instruction& last) {
  return last.flow != Flow::jump && last.flow != Flow::indirect_jump && last.flow != Flow::end &&
         last.flow != Flow::call;
}

}  // namespace

ModuleCode::ModuleCode(CodeView view, std::shared_ptr<const FunctionTable> functions,
                       const InstructionSet& set, std::uint64_t bias, std::string path, std::string build_id)
    : view_(std::move(view)),
      functions_(std::move(functions)),
      set_(set),
      bias_(bias),
      path_(std::move(path)),
      build_id_(std::move(build_id)) {}

std::optional<CodeBounds> ModuleCode::bounds(std::uint64_t address) const {
  const auto area = view_.area(address);
  if (!area) return std::nullopt;
  if (functions_ != nullptr) {
    const std::uint64_t vaddr = address - bias_;
    if (const auto function = functions_->lookup(vaddr))
      return CodeBounds{{function->start + bias_, function->end + bias_}, std::string(function->name), true};
    const auto gap = functions_->gap_around(vaddr);
    if (!gap || !functions_->is_code(vaddr)) return std::nullopt;
    CodeBounds bounds{{gap->start + bias_, gap->end + bias_}, {}, false};
    bounds.range.start = std::max(bounds.range.start, area->start);
    bounds.range.end = std::min(bounds.range.end, area->end);
    // Unwind information may end inside a function (glibc's clone3 ends it before its syscall): code that the
    // function before runs into belongs to it.
    if (const auto before = gap->start == 0 ? std::nullopt : functions_->lookup(gap->start - 1);
        before && before->end == gap->start && view_.area(before->start + bias_) == area) {
      const FunctionCode& head = code({{before->start + bias_, before->end + bias_}, {}, true});
      if (!head.instructions.empty() && head.instructions.back().next() == bounds.range.start &&
          runs_on(head.instructions.back()))
        return CodeBounds{{head.range.start, bounds.range.end}, {}, true};
    }
    narrow_to_called(bounds, address);
    return bounds;
  }
  const std::uint64_t start = address - area->start > sweep_before ? address - sweep_before : area->start;
  const std::uint64_t end = area->end - address > sweep_after ? address + sweep_after : area->end;
  return CodeBounds{{start, end}, {}, false};
}

void ModuleCode::narrow_to_called(CodeBounds& bounds, std::uint64_t address) const {
  const auto next = std::upper_bound(called_entries_.begin(), called_entries_.end(), address);
  if (next != called_entries_.end() && *next < bounds.range.end) bounds.range.end = *next;
  if (next == called_entries_.begin() || *(next - 1) < bounds.range.start) return;
  bounds.range.start = *(next - 1);
  bounds.entry_known = bounds.entry_by_call = true;
}

void ModuleCode::find_called_entries(const std::vector<std::uint64_t>& addresses) {
  ReferenceQuery query;
  for (const std::uint64_t address : addresses) {
    const auto around = bounds(address);
    if (functions_ == nullptr || !around || around->entry_known) continue;
    if (query.targets.empty() || query.targets.back().end <= around->range.start)
      query.targets.push_back(around->range);
  }
  std::vector<std::uint64_t> entries;
  for (const Reference& each : find_references(*this, query))
    if (each.kind == Reference::Kind::call) entries.push_back(each.target);
  std::sort(entries.begin(), entries.end());
  entries.erase(std::unique(entries.begin(), entries.end()), entries.end());
  called_entries_ = std::move(entries);
}

const FunctionCode& ModuleCode::code(const CodeBounds& bounds) const {
  const std::pair key(bounds.range.start, bounds.range.end);
  const auto found = decoded_.find(key);
  if (found != decoded_.end()) return found->second;
  return decoded_.emplace(key, decode_function(view_, set_, bounds.range, bounds.entry_known)).first->second;
}

bool ModuleCode::is_instruction(std::uint64_t address) const {
  const auto around = bounds(address);
  if (!around) return false;
  // Only a changed function needs the full decoding, which knows the file's boundaries behind a patch.
  if (view_.has_changed_pages(around->range)) return code(*around).index_of(address) >= 0;
  return decodes_to(view_, set_, around->range.start, address);
}

std::string ModuleCode::text(std::uint64_t address) const {
  std::array<std::uint8_t, 16> bytes{};
  const std::size_t got = view_.read(address, bytes);
  return set_.text(std::span(bytes).first(got), address);
}

}  // namespace whomap
