// SPDX-License-Identifier: Apache-2.0
// Hands calls over through the ring (core/capture/ring.h), with nothing attached to the target.
#pragma once

#include "core/stub/hand_over.h"

namespace whomap {

class RingHandOver : public HandOver {
 public:
  /// `control_address`: where the target has the control area (control_area_bytes, page-aligned, readable and
  /// writable, private). It must stay mapped as long as a thread may return into code emitted here.
  explicit RingHandOver(std::uint64_t control_address) : control_address_(control_address) {}

  /// Errors: missing instruction (lahf, sahf in 64-bit mode) as kernel_feature; unsupported_target for a
  /// number that eax cannot hold; no other.
  Result<void> emit(CodeBuffer& code, std::uint32_t site, std::int64_t number) override;

 private:
  std::uint64_t control_address_;
};

}  // namespace whomap
