// SPDX-License-Identifier: Apache-2.0
// Remembers the target's code at the watched instructions and takes breakpoints out of it again, writing only
// where a byte is still a breakpoint of ours.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/plan/plan.h"
#include "core/process/target.h"

namespace whomap {

class CodeGuard {
 public:
  struct Original {
    std::uint64_t address;
    std::uint8_t byte;
    std::uint64_t inode;        ///< 0 for anonymous memory
    std::uint64_t file_offset;  ///< of this byte
  };

  /// Reads the byte at every address where the plan puts a breakpoint, and which file is mapped there. Call
  /// it before the breakpoints are set. Errors: process_ended or not_permitted when the memory cannot be
  /// read; plan_mismatch when nothing is mapped there; already_traced when a breakpoint (int3) is there.
  static Result<CodeGuard> record(const Target& target, const Plan& plan);

  /// Of what was recorded before, by another process.
  explicit CodeGuard(std::vector<Original> originals) : originals_(std::move(originals)) {}
  [[nodiscard]] const std::vector<Original>& originals() const { return originals_; }

  struct Foreign {
    std::uint64_t address;
    std::uint8_t byte;  ///< what somebody else has put there
  };
  struct Outcome {
    std::vector<std::uint64_t> restored;  ///< addresses that still held our int3, now as before
    std::vector<Foreign> foreign;         ///< the memory is another's now, or patched: left alone
    std::vector<std::uint64_t> failed;    ///< could not be written
    bool resumed = false;                 ///< SIGCONT was sent to undo a stop that the tracer left
  };

  /// Puts the original bytes back. It does not matter whether the target runs or is stopped. An address whose
  /// mapping (file and offset) is not the recorded one, or not executable any more, is foreign, whatever byte
  /// is there. Does nothing to a target that has exec'd or ended.
  [[nodiscard]] Outcome take_out(const Target& target) const;

  /// Writes the bytes of `foreign` again. A debugger that removes its breakpoints writes what it remembers,
  /// over whatever is there by now; this undoes it.
  void put_back(const Target& target, const std::vector<Foreign>& foreign) const;

  /// For after the tracer: take_out(), unless somebody else traces the target by now. With `tracer_died`, a
  /// target found stopped (state T, no tracer) within half a second is continued: a killed tracer can
  /// leave the SIGSTOP behind that it stopped threads with.
  [[nodiscard]] Outcome restore(const Target& target, bool tracer_died) const;

 private:
  std::vector<Original> originals_;
};

}  // namespace whomap
