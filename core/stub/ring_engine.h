// SPDX-License-Identifier: Apache-2.0
// Puts the recording stubs in: control area, ring, and what the reader needs to know of the target.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "core/base/unique_fd.h"
#include "core/stub/engine.h"
#include "core/stub/ring_hand_over.h"

namespace whomap {

class RingEngine : public StubEngine {
 public:
  /// `ring_bytes`: of the shared memory, as RingShape says.
  RingEngine(std::uint64_t ring_bytes, std::uint64_t page_size)
      : ring_bytes_(ring_bytes), page_size_(page_size), hand_over_(0) {}

  [[nodiscard]] std::uint64_t data_size() const override;
  [[nodiscard]] std::uint64_t own_mapping_size() const override { return ring_bytes_; }
  void use_place(std::uint64_t address) override { place_ = address; }
  [[nodiscard]] bool can_use_again(pid_t pid, std::uint64_t data) const override;
  Result<void> begin(CodeBuffer& code, std::uint64_t data) override;
  Result<void> emit(CodeBuffer& code, std::uint32_t site, std::int64_t number) override;
  /// Makes the ring, a memory file that the target maps and forgets the descriptor of; children do not
  /// inherit it. Nothing is armed.
  Result<void> connect(RemoteCalls& calls, Standstill& stillness, StubState& state,
                       const std::vector<std::uint64_t>& areas) override;

  [[nodiscard]] int ring_fd() const override { return ring_.get(); }
  [[nodiscard]] bool tsc_is_forbidden() const override { return tsc_forbidden_; }
  [[nodiscard]] std::vector<ThreadBase> thread_bases() const override { return threads_; }

 private:
  std::uint64_t ring_bytes_, page_size_;
  RingHandOver hand_over_;
  std::uint64_t place_ = 0;
  UniqueFd ring_;
  bool tsc_forbidden_ = false;
  std::vector<ThreadBase> threads_;
};

}  // namespace whomap
