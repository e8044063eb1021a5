// SPDX-License-Identifier: Apache-2.0
// The file of a watch: JSON Lines that hold what changed from reading to reading, so that a killed writer
// leaves everything up to its last line. core/README.md documents the records.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/base/files.h"
#include "core/process/target.h"
#include "core/regions/sampler.h"

namespace whomap {

inline constexpr std::uint64_t watch_version = 1;

struct WatchHeader {
  TargetIdentity target;
  std::string tool_version;
  std::uint64_t start_ns = 0;  ///< CLOCK_MONOTONIC
  double interval_seconds = 1;
  std::optional<std::uint64_t> mapping_limit;  ///< vm.max_map_count
};

class WatchWriter {
 public:
  static Result<WatchWriter> create(const std::string& path, bool overwrite, const WatchHeader& header);

  /// `before` is the last reading's regions, with unknown sizes carried on (RegionTracker::latest()). Each
  /// record is flushed: what was seen is in the file.
  Result<void> sample(const Snapshot& before, const Reading& reading);
  Result<void> note(const std::string& text);
  /// `record` of type "end"; closes the file.
  Result<void> end(const nlohmann::ordered_json& record);

 private:
  explicit WatchWriter(OutputFile file) : file_(std::move(file)) {}
  Result<void> line(const nlohmann::ordered_json& record);

  OutputFile file_;
  std::uint64_t region_samples_ = 0;
};

struct WatchFile {
  WatchHeader header;
  /// Readings of smaps (of maps, where a watch has no others) in the order of time, evenly thinned; the first
  /// and the last of the file are always there. Regions that only maps saw have no resident sizes.
  std::vector<Snapshot> snapshots;
  struct Totals {
    std::uint64_t time_ns = 0;
    MemoryTotals totals;
  };
  std::vector<Totals> totals;  ///< of every reading
  std::string end_reason;      ///< empty: the file has no end record
  bool cut_line = false;       ///< the last line is not whole
  std::uint64_t damaged_lines = 0;
  std::uint64_t left_out = 0;  ///< readings whose regions are not known, for a damaged line before them
};

/// Keeps at most `most` snapshots, fewer where they are so large that they would not fit in memory. Errors:
/// input_unreadable; input_kind (not a watch file, a newer version); input_damaged (no header, no reading).
Result<WatchFile> read_watch_file(const std::string& path, std::size_t most = 64);
/// The same from a buffer; `name` stands for the path in errors.
Result<WatchFile> read_watch_text(std::string_view text, const std::string& name, std::size_t most = 64);

}  // namespace whomap
