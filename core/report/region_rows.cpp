// SPDX-License-Identifier: Apache-2.0
#include "core/report/region_rows.h"

#include <map>
#include <string_view>
#include <tuple>

namespace whomap {

std::vector<RegionRow> region_rows(const std::vector<RegionAnswer>& regions) {
  std::vector<RegionRow> rows;
  std::map<std::tuple<std::string_view, std::string_view, std::int64_t>, std::size_t> by_what;
  for (const RegionAnswer& region : regions) {
    std::size_t at = rows.size();
    // Regions that only became resident differ in that alone.
    if (!region.watched && region.size_delta != 0)
      at = by_what.try_emplace({region.kind, region.name, region.size_delta}, at).first->second;
    if (at == rows.size()) rows.push_back({&region});
    RegionRow& row = rows[at];
    ++row.count;
    row.size_delta += region.size_delta;
    row.explained_bytes += region.explained_bytes;
    if (row.rss_delta && region.rss_delta)
      *row.rss_delta += *region.rss_delta;
    else
      row.rss_delta.reset();
  }
  return rows;
}

}  // namespace whomap
