// SPDX-License-Identifier: Apache-2.0
#include "core/capture/channel.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <type_traits>

#include "core/process/processor_time.h"

namespace whomap {
namespace {

enum class Kind : std::uint64_t { capture = 1, armed = 2, finished = 3 };

/// Both ends are the same build on the same machine, so messages are the structs themselves.
struct CaptureHead {
  Kind kind = Kind::capture;
  CallEvent event;
  Registers registers;
  std::uint64_t stack_address = 0;
  std::uint64_t stack_bytes = 0;
  std::uint64_t other_frame = 0;  ///< what follows the stack is of the other one
};
struct FinishedMessage {
  Kind kind = Kind::finished;
  TracerCounts counts;
};
static_assert(std::is_trivially_copyable_v<CaptureHead> && std::is_trivially_copyable_v<FinishedMessage>);

constexpr int patience_for_control_ms = 2000;

constexpr std::byte request_ready{1};
constexpr std::byte request_end{2};
constexpr std::byte request_stack_bytes{3};
constexpr std::byte other_side_gone{0};

struct Request {
  std::byte what = other_side_gone;
  std::size_t stack_bytes = 0;
};

/// The collector's next request; waits for it.
Request next_request(int socket) {
  Request request;
  while (::recv(socket, &request, sizeof request, 0) < 0 && errno == EINTR) {
  }
  return request;
}

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

}  // namespace

bool TracerChannel::send(std::span<const std::span<const std::byte>> parts, int patience_ms) {
  std::array<iovec, 3> pieces{};
  std::size_t count = 0;
  for (const auto& part : parts) pieces[count++] = {const_cast<std::byte*>(part.data()), part.size()};
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = count;
  for (;;) {
    if (::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return true;
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return false;
    pollfd room{socket_.get(), POLLOUT, 0};
    if (::poll(&room, 1, patience_ms) <= 0) return false;
  }
}

bool TracerChannel::send_capture(const CallEvent& event, const Registers& registers, const StackView& stack,
                                 int patience_ms) {
  const auto bytes = stack.bytes.first(std::min(stack.bytes.size(), max_stack_copy));
  const auto other = stack.other_bytes.first(std::min(stack.other_bytes.size(), other_stack_bytes));
  const CaptureHead head{Kind::capture, event, registers, stack.address, bytes.size(), stack.other_frame};
  const std::array parts{bytes_of(head), bytes, other};
  return send(parts, patience_ms);
}

bool TracerChannel::send_armed() {
  const Kind kind = Kind::armed;
  const std::array parts{bytes_of(kind)};
  return send(parts, patience_for_control_ms);
}

bool TracerChannel::send_finished(const TracerCounts& counts) {
  const FinishedMessage message{Kind::finished, counts};
  const std::array parts{bytes_of(message)};
  return send(parts, patience_for_control_ms);
}

bool TracerChannel::wait_for_ready() const {
  return next_request(socket_.get()).what == request_ready;
}

void TracerChannel::wait_for_end() {
  Request request;
  while ((request = next_request(socket_.get())).what == request_stack_bytes)
    stack_bytes_->store(std::min(request.stack_bytes, max_stack_copy), std::memory_order_relaxed);
}

Result<std::optional<TracerMessage>> CollectorChannel::receive() {
  ssize_t got = 0;
  do {
    got = ::recv(socket_.get(), buffer_.data(), buffer_.size(), 0);
  } while (got < 0 && errno == EINTR);
  // A tracer that is killed with messages of ours unread makes the kernel report a reset: it is gone all the
  // same.
  if (got <= 0) return std::nullopt;
  const auto size = static_cast<std::size_t>(got);
  const auto damaged = [] {
    return fail(ErrorCode::input_damaged, "the tracer sent a message of unknown shape");
  };
  Kind kind{};
  if (size < sizeof kind) return damaged();
  std::memcpy(&kind, buffer_.data(), sizeof kind);
  if (kind == Kind::armed) return TracerMessage{Armed{}};
  if (kind == Kind::finished && size == sizeof(FinishedMessage)) {
    FinishedMessage message;
    std::memcpy(&message, buffer_.data(), sizeof message);
    return TracerMessage{Finished{message.counts, {}}};
  }
  if (kind != Kind::capture || size < sizeof(CaptureHead)) return damaged();
  CaptureHead head;
  std::memcpy(&head, buffer_.data(), sizeof head);
  if (head.stack_bytes > size - sizeof head) return damaged();
  const auto content = std::span(buffer_).subspan(sizeof head, size - sizeof head);
  const auto stack = content.first(head.stack_bytes);
  const auto other = content.subspan(head.stack_bytes);
  return TracerMessage{Capture{
      head.event,
      head.registers,
      {head.stack_address, {stack.begin(), stack.end()}, head.other_frame, {other.begin(), other.end()}}}};
}

Result<bool> CollectorChannel::deliver(const Consumer& consumer) {
  auto message = receive();
  if (!message) return tl::make_unexpected(message.error());
  if (!*message) return false;
  if (tracer_ != 0 && std::holds_alternative<Armed>(**message))
    tracer_ns_when_armed_ = processor_time_ns(tracer_);
  consumer(**message);
  return true;
}

std::optional<std::uint64_t> CollectorChannel::target_waited_ns() const {
  if (!tracer_ns_when_armed_) return std::nullopt;
  const auto now = processor_time_ns(tracer_);
  if (!now) return std::nullopt;
  return *now - *tracer_ns_when_armed_;
}

void CollectorChannel::request(std::byte what, std::size_t stack_bytes) {
  const Request request{what, stack_bytes};
  // A failure means that the tracer is gone, which receive() will tell.
  (void)::send(socket_.get(), &request, sizeof request, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void CollectorChannel::say_ready() {
  request(request_ready);
}

void CollectorChannel::ask_for_end() {
  request(request_end);
}

void CollectorChannel::ask_for_stack_bytes(std::size_t size) {
  request(request_stack_bytes, size);
}

Result<ChannelPair> make_channel() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return fail(ErrorCode::kernel_feature, "socketpair failed", "are there too many open files?", errno);
  // The kernel doubles the number and counts its own overhead (man 7 socket); FORCE needs CAP_NET_ADMIN
  // and goes beyond net.core.wmem_max.
  const int wanted = 16 * 1024 * 1024;
  if (::setsockopt(ends[0], SOL_SOCKET, SO_SNDBUFFORCE, &wanted, sizeof wanted) != 0)
    (void)::setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &wanted, sizeof wanted);
  return ChannelPair{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

}  // namespace whomap
