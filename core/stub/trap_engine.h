// SPDX-License-Identifier: Apache-2.0
// Hand-over by a breakpoint of the stub's own, right after its `syscall`: an int3 while armed, a nop else.
// GDB takes an int3 that is in the code already as a permanent breakpoint, and goes on behind it without a
// single step.
#pragma once

#include "core/stub/engine.h"

namespace whomap {

class TrapEngine : public StubEngine {
 public:
  explicit TrapEngine(std::uint64_t page_size) : page_size_(page_size) {}

  [[nodiscard]] std::uint64_t data_size() const override { return page_size_; }
  Result<void> begin(CodeBuffer& code, std::uint64_t data) override;
  Result<void> emit(CodeBuffer& code, std::uint32_t site, std::int64_t number) override;
  /// Installs a SIGTRAP handler, which lets a thread go on that meets an int3 of ours when no tracer is
  /// there.
  Result<void> connect(RemoteCalls& calls, Standstill& stillness, StubState& state,
                       const std::vector<std::uint64_t>& areas) override;
  [[nodiscard]] std::vector<TrapPoint> traps() const override { return traps_; }

 private:
  std::uint64_t page_size_;
  std::vector<TrapPoint> traps_;
};

}  // namespace whomap
