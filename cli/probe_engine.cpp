// SPDX-License-Identifier: Apache-2.0
#include "cli/probe_engine.h"

#include <unistd.h>

#include <algorithm>

#include <fmt/format.h>

#include "cli/stub_outcome.h"
#include "core/capture/ring_source.h"

namespace whomap::cli {
namespace {

std::string describe(const Site& site, const std::string& reason) {
  return fmt::format("{}+{:#x} ({}): {}", site.symbol.empty() ? "?" : printable(site.symbol),
                     site.symbol.empty() ? site.syscall_offset : site.symbol_offset, printable(site.module),
                     reason);
}

RingSourceOptions source_options(const SupervisedStubs& stubs) {
  const StubState& state = stubs.installed().state;
  RingSourceOptions options;
  options.control = state.data;
  options.tsc_forbidden = stubs.tsc_is_forbidden();
  for (const PlacedMemory& each : state.memory)
    if (each.kind == "ring") options.ring = each.address;
  for (const ThreadBase& each : stubs.thread_bases()) options.thread_bases.emplace_back(each.tid, each.base);
  return options;
}

}  // namespace

std::vector<std::string> sites_without_stub(const Plan& plan) {
  std::vector<std::string> lines;
  for (const Site& site : plan.sites)
    if (site.watch != WatchKind::none && !site.stub.possible)
      lines.push_back(describe(site, site.stub.reason));
  return lines;
}

Result<RecordingResult> trace_with_probe(const OpenTarget& target, const Plan& plan,
                                         const RecordingOptions& recording, const CommonOptions& common) {
  auto stubs = start_stubs(plan, "ring");
  if (!stubs) return tl::make_unexpected(stubs.error());
  RecordingOptions options = recording;
  options.engine = "probe";
  for (const SiteWithoutStub& each : stubs->installed().left_out) {
    options.notes.push_back("not watched: " + describe(plan.sites[each.site], each.reason));
    if (common.verbose) say(common, options.notes.back());
  }
  auto source = RingSource::open(target.target, plan, stubs->take_ring(), source_options(*stubs));
  if (!source) {
    (void)remove_and_report(*stubs, common);
    return tl::make_unexpected(source.error());
  }
  auto result = record(target.target, plan, **source, options, progress_printer(common, recording.seconds),
                       [&](bool) { return remove_and_report(*stubs, common); });
  if (!result) return result;
  if (!result->armed) {
    if (recording.path != "-") ::unlink(recording.path.c_str());  // it holds nothing
    if (result->end.reason == "interrupted")
      return fail(ErrorCode::interrupted, "interrupted before the trace began");
    if (result->target) return tl::make_unexpected(*result->target);
    return fail(ErrorCode::not_permitted,
                fmt::format("the stubs in process {} could not be armed", plan.target.pid));
  }
  return result;
}

}  // namespace whomap::cli
