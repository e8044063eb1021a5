// SPDX-License-Identifier: Apache-2.0
// What whomap verify reads: a saved run and a trace's report may be anybody's, the rest is the kernel's.
// Nothing may throw, and whatever was read must be judged and written again.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/process/interrupted_calls.h"
#include "core/verify/effect.h"
#include "core/verify/held_memory.h"
#include "core/verify/process_table.h"
#include "core/verify/saved.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace whomap;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)tmpfs_mounts(text);
  (void)created_segment_bytes(text, 4711);
  (void)parse_process_entry(text);
  (void)parse_waiting_call(text);
  static const auto pattern = NamePattern::compile("arena");
  (void)find_effects(text, {{EffectKind::gone, *pattern}});
  const auto saved = parse_saved_run(text, "input");
  if (!saved) return 0;
  VerifyInput input;
  input.subject = *saved;
  const std::string written = to_json_text(input, conclude(input, {}), {});
  if (!parse_saved_run(written, "written")) std::abort();
  return 0;
}
