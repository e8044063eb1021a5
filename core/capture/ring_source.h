// SPDX-License-Identifier: Apache-2.0
// Captures from recording stubs: arms them, reads the ring, keeps the table of stacks current.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/unique_fd.h"
#include "core/capture/capture_source.h"
#include "core/capture/ring.h"
#include "core/capture/ring_reader.h"
#include "core/capture/stack_ranges.h"
#include "core/capture/thread_finder.h"
#include "core/plan/plan.h"
#include "core/process/memory.h"
#include "core/process/target.h"

namespace whomap {

struct RingSourceOptions {
  std::uint64_t control = 0;  ///< address of the control area in the target
  std::uint64_t ring = 0;     ///< address of the ring in the target
  std::vector<std::pair<pid_t, std::uint64_t>> thread_bases;
  bool tsc_forbidden = false;          ///< prctl(PR_GET_TSC) in the target said so
  std::uint64_t minimum_length = 0;    ///< shorter mmaps are only counted, bytes
  std::uint64_t sample_interval = 0;   ///< bytes; 0: every call
  std::uint64_t calls_per_second = 0;  ///< 0: no limit
};

class RingSource : public CaptureSource {
 public:
  /// `ring`: the shared memory's descriptor, formatted here. `target` and `plan` must outlive the object.
  /// Errors: kernel_feature when it cannot be mapped; not_permitted when the target's control area cannot be
  /// written.
  static Result<std::unique_ptr<RingSource>> open(const Target& target, const Plan& plan, UniqueFd ring,
                                                  const RingSourceOptions& options);
  ~RingSource() override;
  RingSource(const RingSource&) = delete;
  RingSource& operator=(const RingSource&) = delete;

  [[nodiscard]] int fd() const override { return timer_.get(); }
  void say_ready() override;
  /// Lets calls under way finish for some milliseconds, disarms, and reads the rest.
  void ask_for_end() override;
  Result<bool> deliver(const Consumer& consumer) override;
  /// Estimated from the number and size of the records.
  [[nodiscard]] std::optional<std::uint64_t> target_waited_ns() const override {
    return static_cast<std::uint64_t>(busy_ns_);
  }

 private:
  RingSource(const Target& target, const Plan& plan, const RingShape& shape,
             const RingSourceOptions& options);
  void write_settings();
  void arm(ArmedState armed);
  void refresh_stacks();
  void sleep_until_next();
  std::size_t poll(const Consumer& consumer, bool last);
  [[nodiscard]] Finished finished() const;
  [[nodiscard]] ControlPage read_control() const;
  [[nodiscard]] std::uint64_t return_address_of(std::uint32_t site) const;

  const Target& target_;
  const Plan& plan_;
  RingShape shape_;
  RingSourceOptions options_;
  std::string tsc_problem_;
  void* memory_ = nullptr;
  UniqueFd timer_;
  MemoryFile memory_file_;
  ThreadFinder threads_;
  std::optional<RingReader> reader_;
  std::optional<StackTableWriter> stack_writer_;
  std::uint64_t next_refresh_ns_ = 0;
  std::uint64_t unknown_stacks_ = 0;  ///< since the last refresh
  std::size_t unlisted_ranges_ = 0;
  double busy_ns_ = 0;  ///< of the target's threads, estimated
  bool said_armed_ = false, ending_ = false, said_finished_ = false, wrote_ = true;
};

}  // namespace whomap
