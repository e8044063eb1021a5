// SPDX-License-Identifier: Apache-2.0
// What a trace file holds, in memory. core/README.md documents the file format.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/capture/call_event.h"
#include "core/plan/plan.h"
#include "core/process/target.h"
#include "core/regions/snapshot.h"
#include "core/symbols/frame.h"

namespace whomap {

/// Clocks of a trace. Times of the last two cannot be compared with those of another file.
inline constexpr std::string_view monotonic_clock = "CLOCK_MONOTONIC";
inline constexpr std::string_view log_clock = "log";      ///< that of the imported log
inline constexpr std::string_view order_clock = "order";  ///< only the order is known; no durations

struct TraceHeader {
  TargetIdentity target;
  Plan plan;
  std::string engine;  ///< "gdb", "probe", or "import:KIND"
  std::string tool_version;
  std::uint64_t start_ns = 0;
  std::string clock{monotonic_clock};
};

/// Lost calls: how many, and why.
struct LostRecord {
  std::uint64_t count = 0;
  std::string reason;
};

struct TraceEvent {
  CallEvent call;
  std::uint32_t stack = 0;  ///< id of a stack record
};

/// Totals, written last.
struct TraceEnd {
  std::string reason;  ///< why it ended: time, hits, interrupted, target-exited, target-exec, engine-died ...
  std::uint64_t end_ns = 0;
  std::uint64_t hits = 0;  ///< times a watched instruction was reached
  std::uint64_t events = 0;
  std::uint64_t failed_calls = 0;
  std::uint64_t lost = 0;
  std::uint64_t mispaired = 0;
  std::uint64_t left_out = 0;  ///< only counted, as the user wanted it
  std::uint64_t threads = 0;
  std::optional<double> stopped_ms, longest_stop_ms;
  /// 0..1: the part of the traced time in which some thread waited for the tracer.
  std::optional<double> predicted_slowdown;
};

}  // namespace whomap
