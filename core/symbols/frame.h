// SPDX-License-Identifier: Apache-2.0
// A frame as people read it. The wire form of traces and reports is made from this.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace whomap {

struct Frame {
  std::string module;        ///< path as mapped; empty when no module holds the address
  std::string build_id;      ///< lower-case hex, empty when there is none
  std::uint64_t offset = 0;  ///< link-time address of the frame's pc (return address, except where exact)
  std::optional<std::string> function;  ///< demangled; nullopt when no symbol covers the address
  std::optional<std::string> file;
  std::optional<std::uint32_t> line;
  bool inlined = false;   ///< this function was inlined into the next frame, and shares its pc
  bool guessed = false;   ///< not proven: stands on a guess of the unwinder, or inferred from tail calls
  bool exact = false;     ///< offset is the instruction itself, not a return address
  bool run_time = false;  ///< offset is where it was mapped: an imported log has no link-time address
  bool operator==(const Frame&) const = default;
};

struct Stack {
  std::uint32_t id = 0;
  std::vector<Frame> frames;  ///< innermost first
  std::optional<std::string> truncated;
};

}  // namespace whomap
