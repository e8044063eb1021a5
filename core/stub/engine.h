// SPDX-License-Identifier: Apache-2.0
// What an engine adds to the way into the target.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/error.h"
#include "core/stub/hand_over.h"
#include "core/stub/remote_call.h"
#include "core/stub/standstill.h"
#include "core/stub/stub_state.h"

namespace whomap {

/// A thread and the base of its fs segment, where C libraries keep the thread's descriptor.
struct ThreadBase {
  pid_t tid = 0;
  std::uint64_t base = 0;
};

class StubEngine : public HandOver {
 public:
  /// Bytes of private writable memory that its code needs; a multiple of the page size.
  [[nodiscard]] virtual std::uint64_t data_size() const = 0;

  /// Bytes of memory that connect() will map itself, and where they are in nobody's way.
  [[nodiscard]] virtual std::uint64_t own_mapping_size() const { return 0; }
  virtual void use_place(std::uint64_t /*address*/) {}

  /// May data that an earlier installation left at `data` be used by this one?
  [[nodiscard]] virtual bool can_use_again(pid_t /*pid*/, std::uint64_t /*data*/) const { return true; }

  /// Appends what comes before the stubs of one code area. `data`: where its memory will lie, the same for
  /// all areas.
  virtual Result<void> begin(CodeBuffer& code, std::uint64_t data) = 0;

  /// Everything is mapped and written but the jumps, all threads stand still: makes ready what the code
  /// needs. What it changes is written into `state` and saved before the change. `areas`: the code areas in
  /// use.
  virtual Result<void> connect(RemoteCalls& calls, Standstill& stillness, StubState& state,
                               const std::vector<std::uint64_t>& areas) = 0;

  /// The points that emit() has made, for the state.
  [[nodiscard]] virtual std::vector<TrapPoint> traps() const { return {}; }
  /// Forgets all but the first `count` of them: the code with the others was thrown away.
  virtual void keep_traps(std::size_t /*count*/) {}

  /// Of the memory that is shared with the target, -1: none. Valid after connect(), as the next one.
  [[nodiscard]] virtual int ring_fd() const { return -1; }
  /// May the target not read the time stamp counter?
  [[nodiscard]] virtual bool tsc_is_forbidden() const { return false; }
  /// The threads at the installation, for the reader to tell them apart.
  [[nodiscard]] virtual std::vector<ThreadBase> thread_bases() const { return {}; }
};

}  // namespace whomap
