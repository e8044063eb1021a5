// SPDX-License-Identifier: Apache-2.0
// module + offset -> function, file:line and inlined frames. Slow and allocating: used after
// detaching, never while the target waits.
#pragma once

#include <memory>
#include <vector>

#include "core/elf/image.h"
#include "core/elf/module_map.h"
#include "core/symbols/frame.h"
#include "core/unwind/unwinder.h"

namespace whomap {

class Symboliser {
 public:
  Symboliser();
  ~Symboliser();
  Symboliser(const Symboliser&) = delete;
  Symboliser& operator=(const Symboliser&) = delete;

  /// The frames at `offset` (link-time address) of `image`, innermost inlined first, at least one;
  /// the last is the function that has the code. With exact == false the lookup is at offset - 1,
  /// because a return address may already belong to the next line or function. What is not known
  /// stays nullopt: a symbol that does not cover the address is never used.
  /// Separate debug information is taken from /usr/lib/debug by build-id only.
  std::vector<Frame> frames(const std::shared_ptr<const Image>& image, std::uint64_t offset, bool exact);

  /// The same for a whole stack, innermost first, with two things added that one frame cannot show:
  /// addresses without a module, and the functions that left the stack by a tail call, where the
  /// debug information allows just one way from the call to the function that runs (`guessed`, because
  /// they are inferred; GDB shows them too).
  std::vector<Frame> frames(const UnwoundStack& stack, const ModuleMap& modules);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace whomap
