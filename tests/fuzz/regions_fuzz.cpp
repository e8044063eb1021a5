// SPDX-License-Identifier: Apache-2.0
// Saved regions may hold anything: what is read of them ascends and does not overlap.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/match/signature_file.h"
#include "core/regions/pmap_text.h"
#include "core/regions/saved_regions.h"

namespace {

void check(const std::vector<whomap::Snapshot>& snapshots) {
  for (const whomap::Snapshot& snapshot : snapshots) {
    std::uint64_t end = 0;
    for (const whomap::Region& region : snapshot.regions) {
      if (region.vma.start < end || region.vma.end <= region.vma.start) std::abort();
      end = region.vma.end;
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check(whomap::snapshots_from_pmap(text));
  check(whomap::snapshots_from_text(text));
  (void)whomap::signatures_from_text(text, "fuzz");
  return 0;
}
