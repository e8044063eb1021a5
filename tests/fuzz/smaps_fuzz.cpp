// SPDX-License-Identifier: Apache-2.0
// The kernel's text, cut and damaged: every line is an entry, a field or unparsed, however it comes in
// pieces; what is a region is a region once; and a snapshot survives its round trip through JSON.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/base/json_fields.h"
#include "core/process/statm.h"
#include "core/process/status.h"
#include "core/process/thread_stacks.h"
#include "core/regions/classes.h"
#include "core/regions/smaps.h"
#include "core/regions/snapshot.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace whomap;
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const SmapsList whole = parse_smaps(text);
  std::size_t entries = 0;
  SmapsParser parser([&](SmapsEntry&) { ++entries; });
  const std::size_t piece = 1 + data[0] % 97U;
  for (std::size_t i = 0; i < text.size(); i += piece) parser.feed(text.substr(i, piece));
  parser.finish();
  require(entries == whole.entries.size() && parser.unparsed() == whole.unparsed);

  const Snapshot snapshot = snapshot_from_text(text);
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < snapshot.regions.size(); ++i) {
    const Vma& vma = snapshot.regions[i].vma;
    require(vma.start >= end && vma.start < vma.end);
    end = vma.end;
    const RegionClass kind = classify(snapshot, i);
    require(!kind.evidence.empty() && kind.kind == kind_of(snapshot, i));
    (void)traits(snapshot.regions[i]);
  }
  const auto again = snapshot_from_json(parse_json(dump_line(to_json(snapshot))));
  require(again && again->regions.size() == snapshot.regions.size());
  (void)parse_status(text);
  (void)parse_statm(text);
  (void)parse_stack_pointer(text);
  return 0;
}
