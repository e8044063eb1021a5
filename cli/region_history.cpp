// SPDX-License-Identifier: Apache-2.0
#include "cli/region_history.h"

#include <cstdio>

#include <fmt/format.h>

#include "core/match/quantity.h"
#include "core/trace/watch_file.h"

namespace whomap::cli {

Result<RegionHistory> load_history(const std::string& path) {
  auto file = read_watch_file(path);
  if (!file) return tl::make_unexpected(file.error());
  if (file->damaged_lines != 0)
    std::fputs(fmt::format("whomap: {} of {} were damaged, and the regions of {} could not be told\n",
                           count_text(file->damaged_lines, "line"), printable(path),
                           count_text(file->left_out, "reading"))
                   .c_str(),
               stderr);
  if (file->snapshots.empty())
    return fail(ErrorCode::input_damaged, fmt::format("the watch {} has no regions", path), "watch again");
  RegionHistory history;
  history.target = file->header.target;
  history.name = path;
  history.snapshots = std::move(file->snapshots);
  history.totals.reserve(file->totals.size());
  for (const WatchFile::Totals& each : file->totals) history.totals.push_back({each.time_ns, each.totals});
  return history;
}

}  // namespace whomap::cli
