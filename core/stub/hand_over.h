// SPDX-License-Identifier: Apache-2.0
// The interface between the way into the target and the engines.
#pragma once

#include <cstdint>

#include "core/base/error.h"
#include "core/stub/code_buffer.h"

namespace whomap {

/// How a stub tells of a call that is watched.
class HandOver {
 public:
  virtual ~HandOver() = default;
  /// Appends code that runs the system call `number` of plan site `site` and hands it over; falls through at
  /// its end. On entry every register is as the target had it right before its own `syscall` instruction,
  /// except rcx and r11, which are free (the instruction clobbers them: Intel SDM, SYSCALL). At its end
  /// everything is as right after that instruction.
  virtual Result<void> emit(CodeBuffer& code, std::uint32_t site, std::int64_t number) = 0;
};

}  // namespace whomap
