// SPDX-License-Identifier: Apache-2.0
#include "cli/gdb_captures.h"

#include <utility>

namespace whomap::cli {

Result<std::unique_ptr<GdbCaptures>> GdbCaptures::open(UniqueFd socket, pid_t gdb,
                                                       std::unique_ptr<RingSource> ring) {
  std::unique_ptr<GdbCaptures> captures(new GdbCaptures(std::move(socket), gdb, std::move(ring)));
  if (captures->ring_ == nullptr) return captures;
  auto both = CombinedSource::of(captures->tracer_, *captures->ring_);
  if (!both) return tl::make_unexpected(both.error());
  captures->both_.emplace(std::move(*both));
  return captures;
}

}  // namespace whomap::cli
