// SPDX-License-Identifier: Apache-2.0
#include "cli/region_history.h"

#include <fmt/format.h>

#include "core/match/quantity.h"
#include "core/trace/watch_file.h"

namespace whomap::cli {

Result<RegionHistory> load_history(const std::string& path) {
  auto file = read_watch_file(path);
  if (!file) return tl::make_unexpected(file.error());
  if (file->snapshots.empty())
    return fail(ErrorCode::input_damaged, fmt::format("the watch {} has no regions", path), "watch again");
  RegionHistory history;
  history.target = file->header.target;
  history.name = path;
  history.snapshots = std::move(file->snapshots);
  history.totals.reserve(file->totals.size());
  for (const WatchFile::Totals& each : file->totals) history.totals.push_back({each.time_ns, each.totals});
  const std::string name = printable(path);
  if (file->damaged_lines != 0)
    history.notes.push_back(fmt::format("{} of {} were damaged, and the regions of {} could not be told",
                                        count_text(file->damaged_lines, "line"), name,
                                        count_text(file->left_out, "reading")));
  if (file->cut_line)
    history.notes.push_back(
        fmt::format("the watch {} ends in the middle of a line, which was left out: it was killed, its disk "
                    "was full, or it "
                    "is still being written",
                    name));
  return history;
}

}  // namespace whomap::cli
