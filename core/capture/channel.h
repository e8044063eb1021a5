// SPDX-License-Identifier: Apache-2.0
// The connection between the process that stops the target's threads (the tracer) and the one that
// unwinds and writes. A pair of SOCK_SEQPACKET sockets: messages stay whole, and each side notices
// the other's death.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/unique_fd.h"
#include "core/capture/call_event.h"
#include "core/capture/capture_source.h"
#include "core/capture/frame_chain.h"

namespace whomap {

/// The most stack bytes that fit in one message beside the rest.
constexpr std::size_t max_stack_copy = std::size_t{128} * 1024;

/// The tracer's end.
class TracerChannel {
 public:
  explicit TracerChannel(UniqueFd socket) : socket_(std::move(socket)) {}

  /// False when the message was not taken within `patience_ms`: the stopped thread must not wait for
  /// a reader that hangs.
  bool send_capture(const CallEvent& event, const Registers& registers, const StackView& stack,
                    int patience_ms);
  bool send_armed();
  bool send_finished(const TracerCounts& counts);

  /// Blocks until the other side is ready to receive; false when it is gone instead.
  [[nodiscard]] bool wait_for_ready() const;
  /// Blocks until the other side asks for the end of the trace or is gone. Meanwhile takes in how much of a
  /// stack it wants.
  void wait_for_end();
  /// How much of a stack the other side wants, bytes; `otherwise` as long as it has not asked.
  [[nodiscard]] std::size_t stack_bytes(std::size_t otherwise) const {
    const std::size_t asked = stack_bytes_->load(std::memory_order_relaxed);
    return asked == 0 ? otherwise : asked;
  }

  [[nodiscard]] int fd() const { return socket_.get(); }

 private:
  bool send(std::span<const std::span<const std::byte>> parts, int patience_ms);
  UniqueFd socket_;
  std::unique_ptr<std::atomic<std::size_t>> stack_bytes_ = std::make_unique<std::atomic<std::size_t>>(0);
};

/// The other end: receives, and says when it is enough.
class CollectorChannel : public CaptureSource {
 public:
  /// `tracer`: the process at the other end; while it works one thread of the target waits for it.
  explicit CollectorChannel(UniqueFd socket, pid_t tracer = 0)
      : socket_(std::move(socket)), tracer_(tracer), buffer_(max_stack_copy + other_stack_bytes + 4096) {}

  /// The next message; nothing when the tracer has closed or died. Waits for one.
  /// Error input_damaged for a message of unknown shape.
  Result<std::optional<TracerMessage>> receive();
  Result<bool> deliver(const Consumer& consumer) override;
  void say_ready() override;
  void ask_for_end() override;
  void ask_for_stack_bytes(std::size_t size) override;
  [[nodiscard]] int fd() const override { return socket_.get(); }
  /// The tracer's processor time since it was armed.
  [[nodiscard]] std::optional<std::uint64_t> target_waited_ns() const override;

 private:
  void request(std::byte what, std::size_t stack_bytes = 0);
  UniqueFd socket_;
  pid_t tracer_;
  std::optional<std::uint64_t> tracer_ns_when_armed_;
  std::vector<std::byte> buffer_;
};

struct ChannelPair {
  UniqueFd tracer;
  UniqueFd collector;
};

/// Two connected sockets, close-on-exec, with buffers as large as the system allows.
Result<ChannelPair> make_channel();

}  // namespace whomap
