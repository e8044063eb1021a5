// SPDX-License-Identifier: Apache-2.0
#include "core/capture/combined_source.h"

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>
#include <variant>

namespace whomap {
namespace {

bool is_readable(int fd) {
  pollfd waiting{fd, POLLIN, 0};
  return ::poll(&waiting, 1, 0) > 0;
}

void add(Finished& to, Finished&& other) {
  to.counts.hits += other.counts.hits;
  to.counts.captured += other.counts.captured;
  to.counts.lost += other.counts.lost;
  to.counts.unpaired += other.counts.unpaired;
  to.counts.unreadable += other.counts.unreadable;
  to.counts.busy_ns += other.counts.busy_ns;
  to.left_out.too_short += other.left_out.too_short;
  to.left_out.too_short_bytes += other.left_out.too_short_bytes;
  to.left_out.not_sampled += other.left_out.not_sampled;
  to.left_out.not_sampled_bytes += other.left_out.not_sampled_bytes;
  to.left_out.over_rate += other.left_out.over_rate;
  std::move(other.notes.begin(), other.notes.end(), std::back_inserter(to.notes));
}

}  // namespace

Result<CombinedSource> CombinedSource::of(CaptureSource& tracer, CaptureSource& ring) {
  UniqueFd both(::epoll_create1(EPOLL_CLOEXEC));
  for (const int fd : {tracer.fd(), ring.fd()}) {
    epoll_event readable{};
    readable.events = EPOLLIN;
    if (!both.valid() || ::epoll_ctl(both.get(), EPOLL_CTL_ADD, fd, &readable) != 0)
      return fail(ErrorCode::kernel_feature, "epoll cannot be used", {}, errno);
  }
  return CombinedSource(tracer, ring, std::move(both));
}

std::optional<std::uint64_t> CombinedSource::target_waited_ns() const {
  const auto tracer = tracer_.target_waited_ns();
  const auto ring = ring_.target_waited_ns();
  if (!tracer && !ring) return std::nullopt;
  return tracer.value_or(0) + ring.value_or(0);
}

Result<void> CombinedSource::deliver_ring(const Consumer& consumer) {
  const auto alive = ring_.deliver([&](TracerMessage& message) {
    if (std::holds_alternative<Capture>(message)) return consumer(message);
    if (auto* finished = std::get_if<Finished>(&message)) ring_finished_ = std::move(*finished);
  });
  if (!alive) return tl::make_unexpected(alive.error());
  if (!*alive && !ring_finished_) ring_finished_ = Finished{};
  return {};
}

Result<void> CombinedSource::drain_ring(const Consumer& consumer) {
  if (!ring_is_armed_) return {};
  ring_.ask_for_end();
  while (!ring_finished_)
    if (auto delivered = deliver_ring(consumer); !delivered) return delivered;
  return {};
}

Result<bool> CombinedSource::deliver(const Consumer& consumer) {
  if (ring_is_armed_ && !ring_finished_ && is_readable(ring_.fd()))
    if (auto delivered = deliver_ring(consumer); !delivered) return tl::make_unexpected(delivered.error());
  if (!is_readable(tracer_.fd())) return true;
  // What happens with a message that is not a capture may take its time: it comes when everything here is
  // done.
  std::optional<TracerMessage> last;
  const auto alive = tracer_.deliver([&](TracerMessage& message) {
    if (std::holds_alternative<Capture>(message)) return consumer(message);
    last = std::move(message);
  });
  if (!alive) return alive;
  if (last && std::holds_alternative<Armed>(*last)) {
    ring_.say_ready();
    ring_is_armed_ = true;
  }
  if (!*alive || (last && std::holds_alternative<Finished>(*last))) {
    if (auto drained = drain_ring(consumer); !drained) return tl::make_unexpected(drained.error());
    if (last && ring_finished_) add(std::get<Finished>(*last), std::move(*ring_finished_));
  }
  if (last) consumer(*last);
  return alive;
}

}  // namespace whomap
