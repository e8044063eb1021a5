// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "core/base/json_fields.h"
#include "core/trace/input_kind.h"
#include "core/trace/line_source.h"
#include "core/trace/watch_file.h"

namespace whomap {
namespace {

/// Snapshots, thinned to every second one as often as there are too many.
class Thinned {
 public:
  explicit Thinned(std::size_t most) : most_(std::max<std::size_t>(most, 4)) {}

  /// This one would be kept if it were added.
  [[nodiscard]] bool wants() const { return count_ % every_ == 0; }

  void add(Snapshot snapshot) {
    regions_ += snapshot.regions.size();
    kept_.push_back(std::move(snapshot));
    constexpr std::size_t most_regions = 2'000'000;  // half a gigabyte
    if (kept_.size() > most_ || (regions_ > most_regions && kept_.size() > 4)) thin();
  }
  void count() { ++count_; }
  [[nodiscard]] std::vector<Snapshot> take() { return std::move(kept_); }

 private:
  void thin() {
    std::size_t kept = 0;
    regions_ = 0;
    for (std::size_t i = 0; i < kept_.size(); i += 2) {
      if (i != kept) kept_[kept] = std::move(kept_[i]);
      regions_ += kept_[kept++].regions.size();
    }
    kept_.resize(kept);
    every_ *= 2;
  }

  std::size_t most_;
  std::size_t regions_ = 0;
  std::uint64_t every_ = 1, count_ = 0;
  std::vector<Snapshot> kept_;
};

class Reader {
 public:
  Reader(LineSource source, std::string name, std::size_t most)
      : source_(std::move(source)), name_(std::move(name)), kept_(most) {}

  Result<WatchFile> read() {
    if (auto header = read_header(); !header) return tl::make_unexpected(header.error());
    for (;;) {
      auto line = source_.next();
      if (!line) return tl::make_unexpected(line.error());
      if (!*line) break;
      const LineSource::Line& record = **line;
      if (record.text.empty() && !record.too_long) continue;
      if (!record.too_long && read_record(record.text)) continue;
      if (!record.whole) {
        file_.cut_line = true;
      } else {
        ++file_.damaged_lines;
        state_known_ = false;
      }
    }
    if (file_.totals.empty())
      return fail(ErrorCode::input_damaged, fmt::format("the watch {} has no reading", name_), "watch again");
    if (last_time_ns_ != last_kept_ns_ && state_known_)
      if (auto last = build(last_)) kept_.add(std::move(*last));
    file_.snapshots = kept_.take();
    return std::move(file_);
  }

 private:
  Result<void> read_header() {
    const auto start = source_.peek();
    if (!start) return tl::make_unexpected(start.error());
    const InputKind kind = input_kind(*start);
    if (kind != InputKind::whomap_watch)
      return fail(ErrorCode::input_kind,
                  fmt::format("{} is not a whomap watch, it looks like {}", name_, describe(kind)),
                  "give the file that whomap watch -o wrote");
    auto line = source_.next();
    if (!line) return tl::make_unexpected(line.error());
    const nlohmann::json json = parse_json(*line ? (*line)->text : std::string_view{});
    const auto damaged = [&](std::string_view what) {
      return fail(ErrorCode::input_damaged, fmt::format("{}: the header of the watch {}", name_, what),
                  "watch again, or restore the file from where it was copied");
    };
    if (json.is_discarded()) return damaged("is not whole");
    if (json_string(json, "format") != "whomap-watch")
      return fail(ErrorCode::input_kind, fmt::format("{} is not a whomap watch", name_));
    const auto version = json_unsigned(json, "version");
    if (!version || *version == 0) return damaged("has no version");
    if (*version > watch_version)
      return fail(ErrorCode::input_kind,
                  fmt::format("{} is a whomap watch of version {}, and this whomap reads up to version {}",
                              name_, *version, watch_version),
                  "read it with the whomap that wrote it, or a newer one");
    const nlohmann::json* const target = json_member(json, "target");
    const auto pid = target != nullptr ? json_unsigned(*target, "pid") : std::nullopt;
    if (!pid) return damaged("does not name the target");
    WatchHeader& header = file_.header;
    header.target = {static_cast<pid_t>(*pid), json_unsigned(*target, "start_time").value_or(0),
                     json_string(*target, "exe").value_or(""), json_string(*target, "comm").value_or("")};
    header.tool_version = json_string(json, "tool_version").value_or("");
    header.start_ns = json_unsigned(json, "start_ns").value_or(0);
    header.interval_seconds = json_number(json, "interval_seconds").value_or(0);
    header.mapping_limit = json_unsigned(json, "max_map_count");
    return {};
  }

  bool read_record(std::string_view text) {
    const nlohmann::json json = parse_json(text);
    const auto type = json_string(json, "type");
    if (!type) return false;
    if (*type == "sample") return sample(json);
    if (*type == "end") file_.end_reason = json_string(json, "reason").value_or("unknown");
    return true;
  }

  bool sample(const nlohmann::json& json) {
    const auto time = json_unsigned(json, "time_ns");
    const auto depth = json_string(json, "depth");
    if (!time || !depth || *time < last_total_ns_) return false;
    const nlohmann::json* const totals = json_member(json, "totals");
    file_.totals.push_back({*time, totals != nullptr ? totals_from_json(*totals) : MemoryTotals{}});
    last_total_ns_ = *time;
    // A reading that was left out, since nothing had changed, has the regions of the one before.
    const auto unchanged = json_string(json, "unchanged");
    if (*depth == "status" && (!unchanged || !state_known_)) return true;
    const std::string& read = unchanged ? *unchanged : *depth;
    if (json_bool(json, "whole").value_or(false)) {
      regions_.clear();
      state_known_ = true;
    } else if (!state_known_) {
      ++file_.left_out;
      return true;
    }
    if (!unchanged && !apply(json)) return false;
    last_ = json;
    last_.erase("regions");
    last_time_ns_ = *time;
    // Readings of maps alone are kept only where there is nothing better.
    if (read != "smaps" && smaps_seen_) return true;
    smaps_seen_ = smaps_seen_ || read == "smaps";
    if (kept_.wants()) {
      auto snapshot = build(json);
      if (!snapshot) return false;
      kept_.add(std::move(*snapshot));
      last_kept_ns_ = *time;
    }
    kept_.count();
    return true;
  }

  bool apply(const nlohmann::json& json) {
    if (const nlohmann::json* const gone = json_member(json, "gone")) {
      if (!gone->is_array()) return false;
      for (const nlohmann::json& each : *gone) {
        if (!each.is_string()) return false;
        const auto start = parse_hex(each.get_ref<const std::string&>());
        if (!start) return false;
        regions_.erase(*start);
      }
    }
    const nlohmann::json* const changed = json_member(json, "regions");
    if (changed == nullptr || !changed->is_array()) return false;
    for (const nlohmann::json& each : *changed) {
      auto region = region_from_json(each);
      if (!region) return false;
      const std::uint64_t start = region->vma.start;
      regions_.insert_or_assign(start, std::move(*region));
    }
    return true;
  }

  /// nullopt when regions overlap: a change before was lost.
  std::optional<Snapshot> build(const nlohmann::json& json) {
    Snapshot snapshot;
    nlohmann::json frame = json;
    frame["regions"] = nlohmann::json::array();
    auto read = snapshot_from_json(frame);
    if (!read) return std::nullopt;
    snapshot = std::move(*read);
    snapshot.regions.reserve(regions_.size());
    std::uint64_t end = 0;
    for (const auto& [start, region] : regions_) {
      if (start < end) return std::nullopt;
      end = region.vma.end;
      snapshot.regions.push_back(region);
    }
    return snapshot;
  }

  LineSource source_;
  std::string name_;
  Thinned kept_;
  WatchFile file_;
  std::map<std::uint64_t, Region> regions_;  ///< as of the last sample, by start
  nlohmann::json last_;                      ///< the last sample without its regions
  bool state_known_ = false;
  bool smaps_seen_ = false;
  std::uint64_t last_time_ns_ = 0, last_kept_ns_ = 0, last_total_ns_ = 0;
};

}  // namespace

Result<WatchFile> read_watch_file(const std::string& path, std::size_t most) {
  auto source = LineSource::open(path);
  if (!source) return tl::make_unexpected(source.error());
  return Reader(std::move(*source), path, most).read();
}

Result<WatchFile> read_watch_text(std::string_view text, const std::string& name, std::size_t most) {
  return Reader(LineSource::over(text), name, most).read();
}

}  // namespace whomap
