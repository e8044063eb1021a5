// SPDX-License-Identifier: Apache-2.0
#include "core/symbols/symboliser.h"

#include <map>
#include <optional>
#include <utility>

#include "core/elf/debug_file.h"
#include "core/elf/symbol_table.h"
#include "core/symbols/compile_units.h"
#include "core/symbols/function_name.h"

namespace whomap {
namespace {

/// Everything known about one image, read when its first frame is asked for.
class ImageSymbols {
 public:
  explicit ImageSymbols(std::shared_ptr<const Image> image)
      : image_(std::move(image)),
        table_(*image_),
        debug_info_(DebugInfo::open(image_, DebugInfo::Wanted::debug_info)) {
    if (debug_info_) units_.emplace(debug_info_->dwarf());
  }

  const std::vector<Frame>& frames(std::uint64_t offset, bool exact) {
    const auto [known, added] = frames_.try_emplace(std::pair(offset, exact));
    if (added) known->second = look_up(offset, exact);
    return known->second;
  }

 private:
  std::vector<Frame> look_up(std::uint64_t offset, bool exact);
  void add_source(Frame& frame, std::optional<SourceLine> line) const {
    if (!line) return;
    frame.file = std::move(line->file);
    frame.line = line->line;
  }

  std::shared_ptr<const Image> image_;
  SymbolTable table_;
  std::optional<DebugInfo> debug_info_;
  std::optional<CompileUnits> units_;
  std::map<std::pair<std::uint64_t, bool>, std::vector<Frame>> frames_;
};

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
  if (!frame.function)
    if (const FunctionSymbol* const symbol = table_.find(address)) frame.function = demangled(symbol->name);
  add_source(frame, std::move(line));
  result.push_back(std::move(frame));
  return result;
}

}  // namespace

struct Symboliser::State {
  std::map<const Image*, std::unique_ptr<ImageSymbols>> images;  ///< each holds its image alive
};

Symboliser::Symboliser() : state_(std::make_unique<State>()) {}
Symboliser::~Symboliser() = default;

std::vector<Frame> Symboliser::frames(const std::shared_ptr<const Image>& image, std::uint64_t offset, bool exact) {
  auto& symbols = state_->images[image.get()];
  if (!symbols) symbols = std::make_unique<ImageSymbols>(image);
  return symbols->frames(offset, exact);
}

}  // namespace whomap
