// SPDX-License-Identifier: Apache-2.0
// Where captures come from, for the recorder: a tracer at the other end of a socket, or a ring in shared
// memory.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/base/error.h"
#include "core/capture/call_event.h"

namespace whomap {

/// The tracer's counts, sent with its last message.
struct TracerCounts {
  std::uint64_t hits = 0;  ///< stops at watched instructions, or calls recorded by a stub
  std::uint64_t captured = 0;
  std::uint64_t lost = 0;        ///< captured, but the other side did not take it in time
  std::uint64_t unpaired = 0;    ///< calls seen to start whose return was not seen
  std::uint64_t unreadable = 0;  ///< registers of the stopped thread could not be read
  std::uint64_t stopped_ns = 0;  ///< all threads stood still: attach and detach together
  std::uint64_t longest_stop_ns = 0;
  std::uint64_t busy_ns =
      0;  ///< processor time of the tracer while it watched: one thread waits for it at each hit
};

/// Calls that were only counted, because the user asked for that. An mmap with MAP_FIXED, and all that
/// unmaps, moves or resizes, is never among them: what the ledger says of an address stays true.
struct LeftOut {
  std::uint64_t too_short = 0;  ///< mmap calls shorter than the minimum length
  std::uint64_t too_short_bytes = 0;
  std::uint64_t not_sampled = 0;  ///< mmap calls between two samples
  std::uint64_t not_sampled_bytes = 0;
  std::uint64_t over_rate = 0;

  [[nodiscard]] std::uint64_t calls() const { return too_short + not_sampled + over_rate; }
};

/// All planned instructions are watched and the target is about to run on.
struct Armed {};
/// The tracer has let go of the target.
struct Finished {
  TracerCounts counts;
  LeftOut left_out = {};
  std::vector<std::string> notes = {};  ///< what else there is to say about the captures
};

using TracerMessage = std::variant<Capture, Armed, Finished>;

class CaptureSource {
 public:
  using Consumer = std::function<void(TracerMessage&)>;

  virtual ~CaptureSource() = default;
  /// Readable when deliver() has something to do.
  [[nodiscard]] virtual int fd() const = 0;
  /// The engine must not touch the target before this.
  virtual void say_ready() = 0;
  virtual void ask_for_end() = 0;
  /// From now on so much of each stack, bytes. A source may have a size of its own.
  virtual void ask_for_stack_bytes(std::size_t) {}
  /// How long threads of the target have waited for the engine since it was armed, in all, ns; nothing when
  /// that is not known.
  [[nodiscard]] virtual std::optional<std::uint64_t> target_waited_ns() const { return std::nullopt; }
  /// Hands over what has come. False when the engine is gone without a Finished.
  /// Error input_damaged for a message of unknown shape.
  virtual Result<bool> deliver(const Consumer& consumer) = 0;
};

}  // namespace whomap
