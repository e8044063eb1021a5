// SPDX-License-Identifier: Apache-2.0
#include "cli/saved_regions.h"

#include <sys/stat.h>

#include <fmt/format.h>

#include "core/base/files.h"
#include "core/regions/pmap_text.h"
#include "core/regions/saved_regions.h"
#include "core/trace/input_kind.h"

namespace whomap::cli {

Result<std::vector<Snapshot>> load_regions(const std::string& path) {
  struct stat there {};
  if (::stat(path.c_str(), &there) == 0 && S_ISCHR(there.st_mode))  // /dev/zero has no end
    return fail(ErrorCode::input_kind, fmt::format("{} is a device, not a file with regions", path),
                "give a saved copy of /proc/PID/maps or smaps, or the output of pmap -X");
  const auto text = read_file(path);
  if (!text) return tl::make_unexpected(text.error());
  const InputKind kind = input_kind(std::string_view(*text).substr(0, 65536));
  std::vector<Snapshot> snapshots;
  if (kind == InputKind::maps || kind == InputKind::smaps) {
    snapshots = snapshots_from_text(*text);
  } else if (kind == InputKind::pmap) {
    snapshots = snapshots_from_pmap(*text);
  } else {
    return fail(ErrorCode::input_kind,
                fmt::format("{} does not hold regions, it looks like {}", path, describe(kind)),
                kind == InputKind::pmap_plain
                    ? "run pmap with -X: without it there are no resident sizes"
                    : "give a saved copy of /proc/PID/maps or smaps, or the output of pmap -X");
  }
  if (snapshots.empty() || snapshots.back().regions.empty())
    return fail(ErrorCode::input_damaged, fmt::format("{} holds no region that can be read", path));
  return snapshots;
}

}  // namespace whomap::cli
