// SPDX-License-Identifier: Apache-2.0
// Hand-over by a breakpoint of the stub's own, after its `syscall`: an int3 while armed, a nop else, and
// passed only while a word in the target's memory says so. That word is 0 in every forked child
// (MADV_WIPEONFORK): nobody traces it there, and with SIGTRAP blocked it would die of the int3. GDB takes an
// int3 that is in the code already as a permanent breakpoint, and goes on behind it without a single step.
//
// A thread that blocks SIGTRAP must not meet an int3: without a tracer it dies of it. The calls that C
// libraries make in that state, munmap above all (posix_spawn, system, popen, the end of a thread), and all
// calls while a second word is 0, are recorded through a ring instead.
#pragma once

#include "core/stub/engine.h"
#include "core/stub/ring_engine.h"

namespace whomap {

class TrapEngine : public StubEngine {
 public:
  /// `ring_bytes`: as for RingEngine.
  TrapEngine(std::uint64_t ring_bytes, std::uint64_t page_size)
      : page_size_(page_size), ring_(ring_bytes, page_size) {}

  /// The control area, then a page for the handler, and one for the two words.
  [[nodiscard]] std::uint64_t data_size() const override { return ring_.data_size() + 2 * page_size_; }
  [[nodiscard]] std::uint64_t own_mapping_size() const override { return ring_.own_mapping_size(); }
  void use_place(std::uint64_t address) override { ring_.use_place(address); }
  [[nodiscard]] bool can_use_again(pid_t pid, std::uint64_t data) const override {
    return ring_.can_use_again(pid, data);
  }
  Result<void> begin(CodeBuffer& code, std::uint64_t data) override;
  Result<void> emit(CodeBuffer& code, std::uint32_t site, std::int64_t number) override;
  /// Installs a SIGTRAP handler, which lets a thread go on that meets an int3 of ours when no tracer is
  /// there.
  Result<void> connect(RemoteCalls& calls, Standstill& stillness, StubState& state,
                       const std::vector<std::uint64_t>& areas) override;
  [[nodiscard]] std::vector<TrapPoint> traps() const override { return traps_; }
  void keep_traps(std::size_t count) override { traps_.resize(count); }
  [[nodiscard]] int ring_fd() const override { return ring_.ring_fd(); }
  [[nodiscard]] bool tsc_is_forbidden() const override { return ring_.tsc_is_forbidden(); }
  [[nodiscard]] std::vector<ThreadBase> thread_bases() const override { return ring_.thread_bases(); }

 private:
  std::uint64_t page_size_;
  RingEngine ring_;
  std::uint64_t words_ = 0;           ///< address of TrapWords
  std::uint64_t minimum_length_ = 0;  ///< address of RecordSettings::minimum_length
  std::vector<TrapPoint> traps_;
};

}  // namespace whomap
