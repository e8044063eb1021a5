// SPDX-License-Identifier: Apache-2.0
#include "core/match/culprit_text.h"

#include <vector>

#include <fmt/format.h>

namespace whomap {
namespace {

/// JIT code: in no module, or in the map that a runtime writes for perf (/tmp/perf-PID.map).
bool is_compiled_at_run_time(const Frame& frame) {
  return !frame.function && frame.offset != 0 &&
         (frame.module.empty() || module_name(frame).starts_with("perf-"));
}

/// The name that a process runs under, where it tells more than that of its file: redis-server is a link to
/// redis-check-rdb. Names that only begin alike (python3, python3.11) say the same.
std::string running_as(const TargetIdentity& target, const Frame& frame) {
  if (target.comm.empty() || frame.module.empty() || frame.module != target.exe) return {};
  const std::string file = module_name(frame);
  return file.starts_with(target.comm) || target.comm.starts_with(file) ? std::string() : target.comm;
}

}  // namespace

bool is_nameless_runtime_code(const Frame& frame) {
  return is_compiled_at_run_time(frame) || is_java_interpreter(frame);
}

std::string who(const Answer& answer, const StackAnswer& row) {
  if (row.stack.frames.empty()) return fmt::format("code without a captured stack (stack {})", row.stack.id);
  if (!row.culprit)
    return fmt::format("code behind {} (no frame of the program itself was captured)",
                       frame_place(row.stack.frames.back()));
  const Frame& frame = row.stack.frames[row.culprit->frame];
  std::string name = frame_name(frame);
  std::vector<std::string> facts;
  const std::string process = running_as(answer.header.target, frame);
  if (is_compiled_at_run_time(frame)) {
    name = "code compiled at run time";
    facts.push_back(fmt::format("{:#x}", frame.offset));
  } else if (is_java_interpreter(frame)) {
    name = "interpreted Java code";
  } else if (process.empty() || (frame.file && frame.line)) {
    if (frame.function) return frame_place(frame);
  } else {
    if (frame.function) facts.push_back(module_name(frame));
    facts.push_back("running as " + process);
  }
  if (row.culprit->named_caller)
    facts.push_back("called from " + frame_name(row.stack.frames[*row.culprit->named_caller]));
  return facts.empty() ? name : fmt::format("{} ({})", name, fmt::join(facts, ", "));
}

std::string allocator_text(const StackAnswer& row) {
  const std::string through = row.culprit && row.culprit->allocator_frame
                                  ? frame_name(row.stack.frames[*row.culprit->allocator_frame])
                                  : "malloc";
  const std::optional<Runtime> runtime = row.culprit ? row.culprit->runtime : std::nullopt;
  if (runtime) return fmt::format("the memory manager of {} ({})", runtime_name(*runtime), through);
  return row.culprit && row.culprit->beyond_stack ? fmt::format("the allocator ({})", through) : through;
}

}  // namespace whomap
