// SPDX-License-Identifier: Apache-2.0
// The whomap-verify format, version 1: the result for programs, and the baseline of a later run.
//
//   {"format":"whomap-verify","version":1,
//    "verdict":{"class","text","remedy","exit_status"},
//    "limits":{"max_delta_bytes","max_bytes_per_minute","least_operations"},
//    "subject":VARIANT, "control":VARIANT or null, "control_problem":text or null,
//    "baseline":VARIANT or null,
//    "effects":[{"kind","expression","state","text","remedy"}]}
//   VARIANT:
//   {"target":{"pid","start_time","exe","comm"},"command","tree","samples","interval_seconds","max_map_count",
//     "exercise":null or
//     {"command","count","operations_per_run","succeeded","failed","timed_out","first_failure"},
//     "ending","ending_text","points":[MEASUREMENT],"readings":[MEASUREMENT],"notes":[text],
//     "traced":null or {"seconds","events","lost","stacks","truncated","findings":[...]},"trace_problem":text
//     or null,
//     "judgement":{"class","text","remedy","operations","cpu_seconds","swap_change_bytes","lazy_free_change_bytes",
//       "trends":[{"kind","state","doubt","change_bytes","warm_up_bytes","fall_bytes","bytes_per_minute",
//         "interval_bytes_per_minute":null or [low, high]}],"notes":[text]}}
//   MEASUREMENT:
//   {"seconds","start_time","rss_bytes","rss_anon_bytes","rss_file_bytes","rss_shmem_bytes","swap_bytes",
//     "page_table_bytes","lazy_free_bytes","mappings","threads","held_bytes","cpu_seconds","succeeded","failed","processes","most_mappings",
//     "members":[{"pid","start_time","rss_anon_bytes"}]}
// "points" are the spaced measurements, "readings" the light ones between them. Unknown is null, never 0.
// "judgement" is for the reader and is made anew from the measurements when a file is loaded.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/verify/outcome.h"

namespace whomap {

nlohmann::ordered_json to_json(const VerifyInput& input, const VerifyOutcome& outcome,
                               const JudgeLimits& limits);
std::string to_json_text(const VerifyInput& input, const VerifyOutcome& outcome, const JudgeLimits& limits);

/// The subject of a saved run. Errors: input_damaged (naming the field), input_kind. `name` is the file's,
/// for the messages.
Result<VariantResult> parse_saved_run(std::string_view text, const std::string& name);

}  // namespace whomap
