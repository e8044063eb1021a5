// SPDX-License-Identifier: Apache-2.0
#include "cli/stub_outcome.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

namespace whomap::cli {

Result<SupervisedStubs> start_stubs(const Plan& plan, const std::string& engine) {
  return SupervisedStubs::start(std::filesystem::read_symlink("/proc/self/exe").string(), plan, engine);
}

Result<std::unique_ptr<RingSource>> open_ring(const Target& target, const Plan& plan, SupervisedStubs& stubs,
                                              const RecordLimits& limits) {
  return open_ring(target, plan, stubs.installed().state,
                   {stubs.take_ring(), stubs.tsc_is_forbidden(), stubs.thread_bases()}, limits);
}

Result<std::unique_ptr<RingSource>> open_ring(const Target& target, const Plan& plan, const StubState& state,
                                              RingFacts facts, const RecordLimits& limits) {
  RingSourceOptions options;
  options.minimum_length = limits.minimum_length;
  options.sample_interval = limits.sample_interval;
  options.calls_per_second = limits.calls_per_second;
  options.control = state.data;
  options.tsc_forbidden = facts.tsc_forbidden;
  for (const PlacedMemory& each : state.memory)
    if (each.kind == "ring") options.ring = each.address;
  for (const ThreadBase& each : facts.threads) options.thread_bases.emplace_back(each.tid, each.base);
  return RingSource::open(target, plan, std::move(facts.fd), options);
}

Result<std::optional<SupervisedStubs>> put_stubs_in(const Plan& plan, const CommonOptions& common) {
  auto stubs = start_stubs(plan, "trap");
  if (stubs) return std::optional<SupervisedStubs>(std::move(*stubs));
  if (stubs.error().code != ErrorCode::unsupported_target && stubs.error().code != ErrorCode::kernel_feature)
    return tl::make_unexpected(stubs.error());
  say(common, fmt::format("no stubs, ordinary breakpoints instead: {}", to_line(stubs.error())));
  return std::optional<SupervisedStubs>{};
}

StopTimes remove_and_report(SupervisedStubs& stubs, const CommonOptions& common) {
  StopTimes stops;
  const auto add = [&](std::uint64_t nanoseconds) {
    stops.total_ns += nanoseconds;
    stops.longest_ns = std::max(stops.longest_ns, nanoseconds);
  };
  add(stubs.installed().stopped_ns);
  const auto removed = stubs.remove();
  if (!removed) {
    // A process that has ended or exec'd has taken everything with it.
    if (removed.error().code != ErrorCode::process_ended &&
        removed.error().code != ErrorCode::process_replaced)
      say(common, fmt::format("the original code is not back ({}): put it back with 'whomap repair -p {}'",
                              removed.error().happened, stubs.installed().state.target.pid));
    return stops;
  }
  add(removed->stopped_ns);
  for (const std::uint64_t address : removed->foreign)
    say(common,
        fmt::format("the code at {:#x} was changed by somebody else during the trace; it was left alone",
                    address));
  for (const std::uint64_t address : removed->failed)
    say(common, fmt::format("the code at {:#x} could not be put back; try 'whomap repair -p {}'", address,
                            stubs.installed().state.target.pid));
  for (const pid_t child : removed->carriers_left)
    say(common,
        fmt::format("process {}, a child, still has stubs in its code, which do nothing there: somebody else "
                    "traces it. When it is free: 'whomap repair -p {}'",
                    child, child));
  if (removed->handler_kept)
    say(common, "the process has set a SIGTRAP handler of its own during the trace; it was left alone");
  return stops;
}

}  // namespace whomap::cli
