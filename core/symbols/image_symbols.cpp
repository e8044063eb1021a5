// SPDX-License-Identifier: Apache-2.0
#include "core/symbols/image_symbols.h"

#include <elfutils/libdw.h>

#include <algorithm>
#include <iterator>

#include "core/symbols/function_name.h"

namespace whomap {
namespace {

void add_source(Frame& frame, std::optional<SourceLine> line) {
  if (!line) return;
  frame.file = std::move(line->file);
  frame.line = line->line;
}

}  // namespace

ImageSymbols::ImageSymbols(std::shared_ptr<const Image> image)
    : image_(std::move(image)),
      table_(*image_),
      go_functions_(read_go_functions(*image_)),
      debug_info_(DebugInfo::open(image_, DebugInfo::Wanted::debug_info)) {
  if (debug_info_) units_.emplace(debug_info_->dwarf());
}

const std::vector<Frame>& ImageSymbols::frames(std::uint64_t offset, bool exact) {
  const auto [known, added] = frames_.try_emplace(std::pair(offset, exact));
  if (added) known->second = look_up(offset, exact);
  return known->second;
}

std::optional<std::uint64_t> ImageSymbols::function_entry(std::uint64_t address) {
  CompileUnit* const unit = units_ ? units_->find(address) : nullptr;
  if (auto found = unit != nullptr ? unit->function_at(address) : std::nullopt) {
    Dwarf_Addr entry = 0;
    if (dwarf_entrypc(&found->function, &entry) == 0) return entry;
  }
  if (const FunctionSymbol* const symbol = table_.find(address)) return symbol->start;
  if (const GoFunction* const go = go_function(address)) return go->start;
  return std::nullopt;
}

const GoFunction* ImageSymbols::go_function(std::uint64_t address) const {
  auto next =
      std::upper_bound(go_functions_.begin(), go_functions_.end(), address,
                       [](std::uint64_t value, const GoFunction& each) { return value < each.start; });
  if (next == go_functions_.begin() || address >= std::prev(next)->end) return nullptr;
  return &*std::prev(next);
}

std::vector<Frame> ImageSymbols::look_up(std::uint64_t offset, bool exact) {
  const std::uint64_t address = exact ? offset : offset - 1;
  Frame frame;
  frame.module = image_->path();
  frame.build_id = image_->build_id();
  frame.offset = offset;
  frame.exact = exact;

  CompileUnit* const unit = units_ ? units_->find(address) : nullptr;
  std::optional<SourceLine> line = unit != nullptr ? unit->lines().at(address) : std::nullopt;
  const std::optional<FunctionAt> found = unit != nullptr ? unit->function_at(address) : std::nullopt;
  std::vector<Frame> result;
  if (found) {
    for (auto call = found->inlined.rbegin(); call != found->inlined.rend(); ++call) {
      Frame inlined = frame;
      inlined.inlined = true;
      inlined.function = function_name(*call);
      add_source(inlined, std::move(line));
      line = unit->call_line(*call);
      result.push_back(std::move(inlined));
    }
    frame.function = function_name(found->function);
  }
  if (!frame.function) {
    if (const FunctionSymbol* const symbol = table_.find(address))
      frame.function = demangled(symbol->name);
    else if (const GoFunction* const go = go_function(address); go != nullptr && !go->name.empty())
      frame.function = std::string(go->name);
  }
  add_source(frame, std::move(line));
  result.push_back(std::move(frame));
  return result;
}

}  // namespace whomap
