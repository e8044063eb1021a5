// SPDX-License-Identifier: Apache-2.0
#include "core/regions/saved_regions.h"

#include <charconv>

#include "core/base/lines.h"

namespace whomap {
namespace {

/// "7f00-7f10 ..." -> the range; a field line of smaps has none.
std::optional<AddressRange> range_of(std::string_view line) {
  AddressRange range;
  const char* const end = line.data() + line.size();
  const auto [dash, problem] = std::from_chars(line.data(), end, range.start, 16);
  if (problem != std::errc{} || dash == end || *dash != '-') return std::nullopt;
  const auto [rest, problem2] = std::from_chars(dash + 1, end, range.end, 16);
  return problem2 == std::errc{} && rest != end && *rest == ' ' ? std::optional(range) : std::nullopt;
}

}  // namespace

std::vector<Snapshot> snapshots_from_text(std::string_view text) {
  std::vector<Snapshot> snapshots;
  std::string_view rest = text;
  const char* begin = text.data();
  std::uint64_t previous_start = 0;
  const auto add = [&](const char* end) {
    const std::string_view part(begin, static_cast<std::size_t>(end - begin));
    if (part.find_first_not_of("\r\n ") != std::string_view::npos)
      snapshots.push_back(snapshot_from_text(part));
    begin = end;
  };
  while (!rest.empty()) {
    const char* const line_start = rest.data();
    const auto range = range_of(next_line(rest));
    if (!range) continue;
    // A VMA that merged while the file was read comes again and overlaps the one before: that is no new
    // beginning.
    if (range->end <= previous_start) add(line_start);
    previous_start = range->start;
  }
  add(text.data() + text.size());
  return snapshots;
}

}  // namespace whomap
