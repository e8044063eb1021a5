// SPDX-License-Identifier: Apache-2.0
// Which waiting threads would notice that somebody attaches: some system calls return EINTR after a stop
// instead of going on to wait.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/process/target.h"

namespace whomap {

/// A thread that waits in a system call: /proc/PID/task/TID/syscall.
struct WaitingCall {
  std::int64_t number = 0;  ///< x86-64
  std::array<std::uint64_t, 6> arguments{};
};

/// From that file's text; nullopt for "running", for a thread that is stopped outside a call ("-1 ..."), and
/// for anything else.
std::optional<WaitingCall> parse_waiting_call(std::string_view text);

struct ThreadAtRisk {
  pid_t tid = 0;
  std::string comm;
  std::string call;  ///< "epoll_wait"; "recvfrom with a timeout"
};

struct AttachRisk {
  std::vector<ThreadAtRisk> threads;
  std::size_t unknown = 0;  ///< threads whose call could not be read
  std::string why_unknown;

  [[nodiscard]] bool none() const { return threads.empty() && unknown == 0; }
};

/// At this moment; the next one may be another. Stops nothing. Needs the same access as an attach
/// (PTRACE_MODE_ATTACH). Sockets are looked at through a duplicate (pidfd_getfd) that is closed at once.
AttachRisk find_attach_risk(const Target& target);

/// "2 threads wait in calls that return EINTR when a tracer attaches: epoll_wait (4711 worker, 4712 worker)".
/// Empty when there is no risk.
std::string risk_text(const AttachRisk& risk);

}  // namespace whomap
