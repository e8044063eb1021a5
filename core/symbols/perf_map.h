// SPDX-License-Identifier: Apache-2.0
// Names that a runtime writes down for the code it compiles (linux,
// tools/perf/Documentation/jit-interface.txt): /tmp/perf-PID.map with lines "START SIZE NAME", hexadecimal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/process/target.h"

namespace whomap {

class PerfMap {
 public:
  PerfMap() = default;
  /// Lines that are none are left out.
  static PerfMap parse(std::string_view text);

  /// That of the target, in its own root and by its own number. Empty when there is none, or one that anybody
  /// else than the target's user may have written, or one that is older than the process.
  static PerfMap of(const Target& target);

  /// The name for the code at `address`, the last that was given to it; empty when there is none.
  [[nodiscard]] std::string_view find(std::uint64_t address) const;

  [[nodiscard]] bool empty() const { return entries_.empty(); }

 private:
  struct Entry {
    std::uint64_t start, end;
    std::size_t line;  ///< code that is made where other code was comes later in the file
    std::string name;
  };
  std::vector<Entry> entries_;  ///< by start
  std::uint64_t largest_ = 0;   ///< size of one
};

}  // namespace whomap
