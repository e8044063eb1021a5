// SPDX-License-Identifier: Apache-2.0
// A watch file may hold anything: reading it must not throw, and its regions are disjoint and ascend.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/regions/tracker.h"
#include "core/regions/watch_view.h"
#include "core/trace/watch_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace whomap;
  static const std::string header =
      "{\"format\":\"whomap-watch\",\"version\":1,\"target\":{\"pid\":1,\"start_time\":2}}\n"
      "{\"type\":\"sample\",\"depth\":\"smaps\",\"whole\":true,\"time_ns\":1,\"totals\":{},\"regions\":"
      "[{\"start\":\"0x1000\",\"end\":\"0x3000\",\"perms\":\"rw-p\",\"rss\":4096}]}\n";
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  for (const std::string& text : {bytes, header + bytes}) {
    const auto file = read_watch_text(text, "fuzz");
    if (!file) continue;
    RegionTracker tracker;
    for (const Snapshot& snapshot : file->snapshots) {
      std::uint64_t end = 0;
      for (const Region& region : snapshot.regions) {
        if (region.vma.start < end) std::abort();
        end = region.vma.end;
      }
      tracker.add(snapshot);
    }
    if (!file->snapshots.empty()) (void)view_of(tracker, {});
  }
  return 0;
}
