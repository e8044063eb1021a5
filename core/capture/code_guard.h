// SPDX-License-Identifier: Apache-2.0
// Remembers the target's code at the watched instructions and sees to it that it is there again afterwards,
// whatever became of the tracer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/plan/plan.h"
#include "core/process/target.h"

namespace whomap {

class CodeGuard {
 public:
  /// Reads the byte at every address where the plan puts a breakpoint. Call it before the tracer starts.
  /// Error process_ended or not_permitted when the memory cannot be read; plan_mismatch when somebody else's
  /// breakpoint (an int3 that the file does not have) is already there.
  static Result<CodeGuard> record(const Target& target, const Plan& plan);

  struct Outcome {
    std::vector<std::uint64_t> restored;  ///< addresses that still held our int3, now as before
    std::vector<std::uint64_t> foreign;   ///< addresses that hold something else now: left alone
    std::vector<std::uint64_t> failed;    ///< could not be read or written
    bool resumed = false;                 ///< SIGCONT was sent to undo a stop that the tracer left
  };

  /// Compares and puts back. With `tracer_died`, a target found stopped (state T, no tracer) is continued:
  /// a killed tracer can leave the SIGSTOP behind that it attached with. Does nothing to another process.
  [[nodiscard]] Outcome restore(const Target& target, bool tracer_died) const;

 private:
  struct Original {
    std::uint64_t address;
    std::uint8_t byte;
  };
  std::vector<Original> originals_;
};

}  // namespace whomap
