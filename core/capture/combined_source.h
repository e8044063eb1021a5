// SPDX-License-Identifier: Apache-2.0
// Captures of a debugger and of a ring beside it, as one source: one beginning, one end, one count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "core/base/unique_fd.h"
#include "core/capture/capture_source.h"

namespace whomap {

class CombinedSource : public CaptureSource {
 public:
  /// The tracer says when both are armed and finished; the ring is armed when it is. Both
  /// must outlive the object. Error kernel_feature.
  static Result<CombinedSource> of(CaptureSource& tracer, CaptureSource& ring);

  [[nodiscard]] int fd() const override { return both_.get(); }
  void say_ready() override { tracer_.say_ready(); }
  void ask_for_end() override {
    tracer_.ask_for_end();
    if (ring_is_armed_) ring_.ask_for_end();
  }
  void ask_for_stack_bytes(std::size_t size) override { tracer_.ask_for_stack_bytes(size); }
  [[nodiscard]] std::optional<std::uint64_t> target_waited_ns() const override;
  Result<bool> deliver(const Consumer& consumer) override;

 private:
  CombinedSource(CaptureSource& tracer, CaptureSource& ring, UniqueFd both)
      : tracer_(tracer), ring_(ring), both_(std::move(both)) {}
  Result<void> deliver_ring(const Consumer& consumer);
  Result<void> drain_ring(const Consumer& consumer);

  CaptureSource& tracer_;
  CaptureSource& ring_;
  UniqueFd both_;
  bool ring_is_armed_ = false;
  std::optional<Finished> ring_finished_;
};

}  // namespace whomap
