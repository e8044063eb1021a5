// SPDX-License-Identifier: Apache-2.0
#include "cli/gdb_proof.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include <fmt/format.h>

#include "cli/gdb_captures.h"
#include "cli/live.h"
#include "cli/stub_outcome.h"
#include "cli/throw_away.h"
#include "core/base/clock.h"
#include "core/plan/script.h"
#include "gdb_plugin/gdb_process.h"

namespace whomap::cli {
namespace {

constexpr std::uint64_t ns_per_ms = 1'000'000;
constexpr std::uint64_t patience_ms = 20'000;  // a proof takes some tenths of a second

tl::unexpected<Error> unfit(const std::string& path, const std::string& what) {
  return fail(ErrorCode::kernel_feature,
              fmt::format("{} fails with stubs, as tried on a throw-away process: {}", path, what),
              "use another GDB, or the probe engine");
}

/// What came of it, from the first armed stub to the end of GDB.
struct Observed {
  bool armed = false, finished = false;
  std::vector<PractisedCall> captured;
  std::optional<std::vector<PractisedCall>> made;
};

PractisedCall call_of(const Capture& capture) {
  return {capture.event.number, capture.event.arguments[1], capture.event.result};
}

/// Until GDB has let go, is gone, or takes too long. The process makes its calls as soon as it is watched.
Observed observe(CaptureSource& source, const ThrowAway& child) {
  Observed observed;
  const std::uint64_t deadline = monotonic_ns() + patience_ms * ns_per_ms;
  bool alive = true;
  bool child_told = false;
  source.say_ready();
  while (alive && !observed.finished && monotonic_ns() < deadline) {
    pollfd waiting[] = {{source.fd(), POLLIN, 0}, {child_told ? -1 : child.fd(), POLLIN, 0}};
    if (::poll(waiting, 2, static_cast<int>((deadline - monotonic_ns()) / ns_per_ms + 1)) < 0 &&
        errno != EINTR)
      break;
    if (waiting[0].revents != 0) {
      const auto delivered = source.deliver([&](TracerMessage& message) {
        if (const auto* capture = std::get_if<Capture>(&message))
          return observed.captured.push_back(call_of(*capture));
        observed.finished = std::holds_alternative<Finished>(message);
        if (observed.finished) return;
        observed.armed = true;
        child.make_calls();
      });
      alive = delivered && *delivered;
    }
    if (waiting[1].revents != 0) {
      observed.made = child.calls_made();
      child_told = true;
      source.ask_for_end();
    }
  }
  return observed;
}

/// After everything: does the process make the same calls as ever, with nobody looking?
bool goes_on(const ThrowAway& child) {
  child.make_calls();
  return child.calls_made().has_value();
}

}  // namespace

Result<GdbProof> prove_gdb(const std::string& path) {
  const auto plugin = find_plugin_folder();
  if (!plugin) return tl::make_unexpected(plugin.error());
  const auto child = ThrowAway::start();
  if (!child) return tl::make_unexpected(child.error());
  const auto target = open_target(child->pid());
  if (!target) return tl::make_unexpected(target.error());
  // Its calls are those of libc; the many libraries of this program need not be looked through.
  const auto plan =
      make_plan(target->target, target->modules, {{}, R"(/(libc[.]so[.]6|libc-[0-9.]+[.]so)$)"});
  if (!plan) return tl::make_unexpected(plan.error());
  auto stubs = start_stubs(*plan, "trap");
  if (!stubs) return unfit(path, to_line(stubs.error()));
  auto channel = make_channel();
  if (!channel) return tl::make_unexpected(channel.error());
  auto ring = open_ring(target->target, *plan, *stubs, {});
  if (!ring) return tl::make_unexpected(ring.error());
  auto gdb = GdbProcess::start(path, std::move(channel->tracer), [&](int channel_fd, int status_fd) {
    ScriptOptions script;
    script.plugin_folder = *plugin;
    script.channel_fd = channel_fd;
    script.status_fd = status_fd;
    script.stubs = to_json(stubs->installed().state);
    return gdb_script(without_stubs(*plan, stubs->installed().state), script);
  });
  if (!gdb) return tl::make_unexpected(gdb.error());

  const auto captures = GdbCaptures::open(std::move(channel->collector), gdb->pid(), std::move(*ring));
  if (!captures) return tl::make_unexpected(captures.error());
  const Observed observed = observe((*captures)->source(), *child);
  // One that has died shows it only when it gets to run; one that hangs is told to end.
  constexpr double patience_with_the_dying = 3;
  const bool by_itself = gdb->wait(observed.finished ? patience_ms / 1e3 : patience_with_the_dying);
  const auto removed = stubs->remove();
  if (!observed.armed) return tl::make_unexpected(gdb->diagnose());
  if (!observed.made) return unfit(path, "that process ended when it met a stub, or hung");
  if (!std::is_permutation(observed.captured.begin(), observed.captured.end(), observed.made->begin(),
                           observed.made->end()))
    return unfit(path, fmt::format("of {} calls it reported {}, not each as it was made",
                                   observed.made->size(), observed.captured.size()));
  if (!observed.finished || !by_itself) return unfit(path, "it did not let go of that process");
  if (!removed || !removed->failed.empty() || !goes_on(*child))
    return unfit(path, "that process did not run on as before");
  return GdbProof{observed.made->size()};
}

}  // namespace whomap::cli
