// SPDX-License-Identifier: Apache-2.0
// Hand-over by a breakpoint of the stub's own, after its `syscall`: an int3 while armed, a nop else, and
// passed only while a word in the target's memory says so. That word is 0 in every forked child
// (MADV_WIPEONFORK): nobody traces it there, and with SIGTRAP blocked it would die of the int3. GDB takes an
// int3 that is in the code already as a permanent breakpoint, and goes on behind it without a single step.
#pragma once

#include "core/stub/engine.h"

namespace whomap {

class TrapEngine : public StubEngine {
 public:
  explicit TrapEngine(std::uint64_t page_size) : page_size_(page_size) {}

  /// A page for the handler, and one for the word.
  [[nodiscard]] std::uint64_t data_size() const override { return 2 * page_size_; }
  Result<void> begin(CodeBuffer& code, std::uint64_t data) override;
  Result<void> emit(CodeBuffer& code, std::uint32_t site, std::int64_t number) override;
  /// Installs a SIGTRAP handler, which lets a thread go on that meets an int3 of ours when no tracer is
  /// there.
  Result<void> connect(RemoteCalls& calls, Standstill& stillness, StubState& state,
                       const std::vector<std::uint64_t>& areas) override;
  [[nodiscard]] std::vector<TrapPoint> traps() const override { return traps_; }
  void keep_traps(std::size_t count) override { traps_.resize(count); }

 private:
  std::uint64_t page_size_;
  std::uint64_t armed_word_ = 0;
  std::vector<TrapPoint> traps_;
};

}  // namespace whomap
