// SPDX-License-Identifier: Apache-2.0
// What a GDB reports, and what comes through the ring of its stubs, as one source.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>

#include "core/base/unique_fd.h"
#include "core/capture/channel.h"
#include "core/capture/combined_source.h"
#include "core/capture/ring_source.h"

namespace whomap::cli {

class GdbCaptures {
 public:
  /// `socket`: the collector's end of the channel to the process `gdb`. `ring`: null without stubs. Error
  /// kernel_feature.
  static Result<std::unique_ptr<GdbCaptures>> open(UniqueFd socket, pid_t gdb,
                                                   std::unique_ptr<RingSource> ring);

  CaptureSource& source() { return both_ ? static_cast<CaptureSource&>(*both_) : tracer_; }

 private:
  GdbCaptures(UniqueFd socket, pid_t gdb, std::unique_ptr<RingSource> ring)
      : tracer_(std::move(socket), gdb), ring_(std::move(ring)) {}
  CollectorChannel tracer_;
  std::unique_ptr<RingSource> ring_;
  std::optional<CombinedSource> both_;
};

}  // namespace whomap::cli
