// SPDX-License-Identifier: Apache-2.0
#include "core/process/interrupted_calls.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <map>

#include <fmt/format.h>

#include "core/base/files.h"
#include "core/base/unique_fd.h"
#include "core/process/proc_error.h"

namespace whomap {
namespace {

struct NamedCall {
  std::int64_t number;
  std::string_view name;
};

/// man 7 signal, "Interruption of system calls and library functions by stop signals", as far as Linux 6.18
/// does it: tests/unit/interrupted_calls_test.cpp asks the kernel for each. Not there any more, whatever the
/// page says: futex, msgrcv, nanosleep, and read from an inotify descriptor, all of which go on waiting.
constexpr std::array interrupted{
    NamedCall{232, "epoll_wait"},   NamedCall{281, "epoll_pwait"},    NamedCall{441, "epoll_pwait2"},
    NamedCall{65, "semop"},         NamedCall{220, "semtimedop"},     NamedCall{128, "rt_sigtimedwait"},
    NamedCall{208, "io_getevents"}, NamedCall{426, "io_uring_enter"},
};

/// The same page: "Socket interfaces, when a timeout (SO_RCVTIMEO, SO_SNDTIMEO) has been set on the socket".
struct SocketCall {
  std::int64_t number;
  std::string_view name;
  int timeout;
};
constexpr std::array on_sockets{
    SocketCall{0, "read", SO_RCVTIMEO},       SocketCall{19, "readv", SO_RCVTIMEO},
    SocketCall{45, "recvfrom", SO_RCVTIMEO},  SocketCall{47, "recvmsg", SO_RCVTIMEO},
    SocketCall{299, "recvmmsg", SO_RCVTIMEO}, SocketCall{43, "accept", SO_RCVTIMEO},
    SocketCall{288, "accept4", SO_RCVTIMEO},  SocketCall{1, "write", SO_SNDTIMEO},
    SocketCall{20, "writev", SO_SNDTIMEO},    SocketCall{44, "sendto", SO_SNDTIMEO},
    SocketCall{46, "sendmsg", SO_SNDTIMEO},   SocketCall{307, "sendmmsg", SO_SNDTIMEO},
    SocketCall{42, "connect", SO_SNDTIMEO},
};

template <class Number>
std::optional<Number> take_number(std::string_view& text, int base) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  if (base == 16 && text.starts_with("0x")) text.remove_prefix(2);
  Number value{};
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (problem != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

/// Is this a socket with that timeout? False for what cannot be asked: no socket, closed meanwhile, no
/// permission.
bool has_timeout(const Target& target, std::uint64_t descriptor, int which) {
  const UniqueFd copy(
      static_cast<int>(::syscall(SYS_pidfd_getfd, target.pidfd(), static_cast<int>(descriptor), 0)));
  timeval timeout{};
  socklen_t size = sizeof timeout;
  return copy.valid() && ::getsockopt(copy.get(), SOL_SOCKET, which, &timeout, &size) == 0 &&
         (timeout.tv_sec != 0 || timeout.tv_usec != 0);
}

/// The call's name when an attach interrupts it; else empty.
std::string interrupted_call(const Target& target, const WaitingCall& call) {
  for (const NamedCall& each : interrupted)
    if (each.number == call.number) return std::string(each.name);
  for (const SocketCall& each : on_sockets)
    if (each.number == call.number && has_timeout(target, call.arguments[0], each.timeout))
      return fmt::format("{} with a timeout", each.name);
  return {};
}

std::string comm_of(pid_t pid, pid_t tid) {
  auto comm = read_proc_file(pid, fmt::format("task/{}/comm", tid)).value_or("");
  while (!comm.empty() && comm.back() == '\n') comm.pop_back();
  return comm;
}

}  // namespace

std::optional<WaitingCall> parse_waiting_call(std::string_view text) {
  WaitingCall call;
  const auto number = take_number<std::int64_t>(text, 10);
  if (!number || *number < 0) return std::nullopt;
  call.number = *number;
  for (std::uint64_t& argument : call.arguments) {
    const auto value = take_number<std::uint64_t>(text, 16);
    if (!value) return std::nullopt;
    argument = *value;
  }
  return call;
}

AttachRisk find_attach_risk(const Target& target) {
  AttachRisk risk;
  for (const pid_t tid : target.threads()) {
    const auto text = read_proc_file(target.pid(), fmt::format("task/{}/syscall", tid));
    if (!text && !read_proc_file(target.pid(), fmt::format("task/{}/comm", tid))) continue;  // it has ended
    if (!text) {
      ++risk.unknown;
      risk.why_unknown = text.error().code == ErrorCode::not_permitted
                             ? text.error().happened
                             : "this kernel has no /proc/PID/task/TID/syscall";
      continue;
    }
    const auto call = parse_waiting_call(*text);
    if (!call) continue;
    if (std::string name = interrupted_call(target, *call); !name.empty())
      risk.threads.push_back({tid, comm_of(target.pid(), tid), std::move(name)});
  }
  return risk;
}

std::string risk_text(const AttachRisk& risk) {
  std::string text;
  if (!risk.threads.empty()) {
    constexpr std::size_t most_named = 4;  // per call: a pool of workers fills a screen
    std::map<std::string, std::vector<const ThreadAtRisk*>> by_call;
    for (const ThreadAtRisk& thread : risk.threads) by_call[thread.call].push_back(&thread);
    std::string calls;
    for (const auto& [call, threads] : by_call) {
      calls += fmt::format("{}{} (", calls.empty() ? "" : ", ", call);
      for (std::size_t i = 0; i < std::min(threads.size(), most_named); ++i)
        calls += fmt::format("{}{} {}", i == 0 ? "" : ", ", threads[i]->tid, threads[i]->comm);
      calls += threads.size() > most_named ? fmt::format(" and {} more)", threads.size() - most_named) : ")";
    }
    text = risk.threads.size() == 1
               ? fmt::format("1 thread waits in a call that returns EINTR when a tracer attaches: {}", calls)
               : fmt::format("{} threads wait in calls that return EINTR when a tracer attaches: {}",
                             risk.threads.size(), calls);
  }
  if (risk.unknown > 0)
    text += fmt::format("{}in which call {} of the threads {} is not known: {}", text.empty() ? "" : "; ",
                        risk.unknown, risk.unknown == 1 ? "waits" : "wait", risk.why_unknown);
  return text;
}

}  // namespace whomap
