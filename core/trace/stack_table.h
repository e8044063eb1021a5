// SPDX-License-Identifier: Apache-2.0
// The distinct stacks of a live trace: unwinds each copy, gives equal call chains one id.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/capture/call_event.h"
#include "core/elf/module_map.h"
#include "core/process/target.h"
#include "core/symbols/frame.h"
#include "core/symbols/perf_map.h"
#include "core/symbols/symboliser.h"
#include "core/unwind/unwinder.h"

namespace whomap {

class StackTable {
 public:
  explicit StackTable(const Target& target);

  struct Found {
    std::uint32_t id;
    bool is_new;
    std::uint64_t stack_bytes;  ///< of the copy that were needed
    bool copy_ended;            ///< it was too short
  };
  Found find(const Registers& registers, const StackCopy& copy);

  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(stacks_.size()); }
  /// Frames as module + offset + build-id, without names.
  [[nodiscard]] Stack stack(std::uint32_t id) const;
  /// The same with functions, lines and inlined frames. Slow: for after detaching.
  Stack named(std::uint32_t id);
  /// Reads the modules once more, so that notes() knows what was loaded meanwhile.
  void read_modules();
  /// What could not be read, and what came after the plan was made, for the trace's notes.
  [[nodiscard]] std::vector<std::string> notes() const;

 private:
  UnwoundStack unwind(const Registers& registers, const StackCopy& copy);
  void name_compiled_code(Stack& stack);
  [[nodiscard]] Frame frame_of(const UnwoundFrame& unwound) const;

  const Target& target_;
  ModuleMap modules_;
  Unwinder unwinder_;
  Symboliser symboliser_;
  std::optional<PerfMap> compiled_;  ///< read when the first frame asks for it
  std::vector<UnwoundStack> stacks_;
  std::unordered_map<std::string, std::uint32_t> ids_;  ///< by the frames' bytes
  std::chrono::steady_clock::time_point next_module_read_;
  std::size_t modules_at_start_ = 0;
};

}  // namespace whomap
