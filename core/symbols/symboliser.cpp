// SPDX-License-Identifier: Apache-2.0
#include "core/symbols/symboliser.h"

#include <map>

#include "core/symbols/image_symbols.h"
#include "core/symbols/tail_calls.h"

namespace whomap {

struct Symboliser::State {
  ImageSymbols& symbols(const std::shared_ptr<const Image>& image) {
    auto& known = images[image.get()];
    if (!known) known = std::make_unique<ImageSymbols>(image);
    return *known;
  }
  std::vector<std::uint64_t> tail_calls(const std::shared_ptr<const Image>& caller,
                                        std::uint64_t return_address,
                                        const std::shared_ptr<const Image>& callee, std::uint64_t address);

  std::map<const Image*, std::unique_ptr<ImageSymbols>> images;  ///< each holds its image alive
  std::map<std::pair<std::pair<const Image*, std::uint64_t>, std::pair<const Image*, std::uint64_t>>,
           std::vector<std::uint64_t>>
      tail_call_cache;
};

std::vector<std::uint64_t> Symboliser::State::tail_calls(const std::shared_ptr<const Image>& caller,
                                                         std::uint64_t return_address,
                                                         const std::shared_ptr<const Image>& callee,
                                                         std::uint64_t address) {
  const auto [known, added] =
      tail_call_cache.try_emplace({{caller.get(), return_address}, {callee.get(), address}});
  if (added) known->second = tail_calls_between(symbols(caller), return_address, symbols(callee), address);
  return known->second;
}

Symboliser::Symboliser() : state_(std::make_unique<State>()) {}
Symboliser::~Symboliser() = default;

std::vector<Frame> Symboliser::frames(const std::shared_ptr<const Image>& image, std::uint64_t offset,
                                      bool exact) {
  return state_->symbols(image).frames(offset, exact);
}

std::vector<Frame> Symboliser::frames(const UnwoundStack& stack, const ModuleMap& modules) {
  std::vector<Frame> result;
  for (std::size_t i = 0; i < stack.frames.size(); ++i) {
    const UnwoundFrame& frame = stack.frames[i];
    if (frame.module < 0) {
      Frame unknown;
      unknown.offset = frame.offset;
      unknown.guessed = frame.guessed;
      unknown.exact = frame.exact;
      result.push_back(std::move(unknown));
      continue;
    }
    const std::shared_ptr<const Image>& image = modules.module(frame.module).image;
    const std::string& path = modules.module(frame.module).path;
    for (Frame named : frames(image, frame.offset, frame.exact)) {
      named.module = path;
      named.guessed = frame.guessed;
      result.push_back(std::move(named));
    }
    if (i + 1 == stack.frames.size()) break;
    const UnwoundFrame& caller = stack.frames[i + 1];
    if (caller.module < 0 || caller.exact || caller.guessed) continue;
    const std::uint64_t address = frame.exact ? frame.offset : frame.offset - 1;
    for (const std::uint64_t jump :
         state_->tail_calls(modules.module(caller.module).image, caller.offset, image, address))
      for (Frame inferred : frames(image, jump, false)) {
        inferred.module = path;
        inferred.guessed = true;
        result.push_back(std::move(inferred));
      }
  }
  return result;
}

}  // namespace whomap
