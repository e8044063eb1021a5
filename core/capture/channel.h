// SPDX-License-Identifier: Apache-2.0
// The connection between the process that stops the target's threads (the tracer) and the one that
// unwinds and writes. A pair of SOCK_SEQPACKET sockets: messages stay whole, and each side notices
// the other's death.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/error.h"
#include "core/base/unique_fd.h"
#include "core/capture/call_event.h"

namespace whomap {

/// The tracer's counts, sent with its last message.
struct TracerCounts {
  std::uint64_t hits = 0;  ///< stops at watched instructions
  std::uint64_t captured = 0;
  std::uint64_t lost = 0;        ///< captured, but the other side did not take it in time
  std::uint64_t unpaired = 0;    ///< calls seen to start whose return was not seen
  std::uint64_t unreadable = 0;  ///< registers of the stopped thread could not be read
  std::uint64_t stopped_ns = 0;  ///< all threads stood still: attach and detach together
  std::uint64_t longest_stop_ns = 0;
  std::uint64_t busy_ns =
      0;  ///< processor time of the tracer while it watched: one thread waits for it at each hit
};

/// All planned instructions are watched and the target is about to run on.
struct Armed {};
/// The tracer has let go of the target.
struct Finished {
  TracerCounts counts;
};

using TracerMessage = std::variant<Capture, Armed, Finished>;

/// The most stack bytes that fit in one message beside the rest.
constexpr std::size_t max_stack_copy = std::size_t{128} * 1024;

/// The tracer's end.
class TracerChannel {
 public:
  explicit TracerChannel(UniqueFd socket) : socket_(std::move(socket)) {}

  /// False when the message was not taken within `patience_ms`: the stopped thread must not wait for
  /// a reader that hangs.
  bool send_capture(const CallEvent& event, const Registers& registers, std::uint64_t stack_address,
                    std::span<const std::byte> stack, int patience_ms);
  bool send_armed();
  bool send_finished(const TracerCounts& counts);

  /// Blocks until the other side is ready to receive; false when it is gone instead.
  [[nodiscard]] bool wait_for_ready() const;
  /// Blocks until the other side asks for the end of the trace or is gone.
  void wait_for_end() const;

  [[nodiscard]] int fd() const { return socket_.get(); }

 private:
  bool send(std::span<const std::span<const std::byte>> parts, int patience_ms);
  UniqueFd socket_;
};

/// The other end: receives, and says when it is enough.
class CollectorChannel {
 public:
  explicit CollectorChannel(UniqueFd socket) : socket_(std::move(socket)), buffer_(max_stack_copy + 4096) {}

  /// The next message; nothing when the tracer has closed or died. Waits for one.
  /// Error input_damaged for a message of unknown shape.
  Result<std::optional<TracerMessage>> receive();
  /// The tracer must not touch the target before this.
  void say_ready();
  void ask_for_end();

  [[nodiscard]] int fd() const { return socket_.get(); }

 private:
  void request(std::byte what);
  UniqueFd socket_;
  std::vector<std::byte> buffer_;
};

struct ChannelPair {
  UniqueFd tracer;
  UniqueFd collector;
};

/// Two connected sockets, close-on-exec, with buffers as large as the system allows.
Result<ChannelPair> make_channel();

}  // namespace whomap
