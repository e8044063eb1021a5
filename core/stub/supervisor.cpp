// SPDX-License-Identifier: Apache-2.0
#include "core/stub/supervisor.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "core/base/clock.h"
#include "core/base/files.h"
#include "core/base/json_fields.h"
#include "core/base/spawn.h"
#include "core/process/status.h"

namespace whomap {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

/// `fd`: goes along (SCM_RIGHTS), when it is one.
void send(const UniqueFd& channel, const ordered_json& message, int fd = -1) {
  std::string text = dump_line(message);
  iovec content{text.data(), text.size()};
  msghdr header{};
  header.msg_iov = &content;
  header.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof fd)> control{};
  if (fd >= 0) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    *rights = {CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS};
    std::memcpy(CMSG_DATA(rights), &fd, sizeof fd);
  }
  (void)!::sendmsg(channel.get(), &header, MSG_NOSIGNAL);
}

/// The next message; nothing when the other side is gone. A descriptor that comes along goes into `fd`.
std::optional<json> receive(const UniqueFd& channel, UniqueFd* fd = nullptr) {
  std::string text(std::size_t{1} << 20, '\0');
  iovec content{text.data(), text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &content;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  ssize_t got = 0;
  while ((got = ::recvmsg(channel.get(), &header, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR) {
  }
  if (got <= 0) return std::nullopt;
  const cmsghdr* const rights = CMSG_FIRSTHDR(&header);
  if (fd != nullptr && rights != nullptr && rights->cmsg_type == SCM_RIGHTS) {
    int received = -1;
    std::memcpy(&received, CMSG_DATA(rights), sizeof received);
    *fd = UniqueFd(received);
  }
  return parse_json(std::string_view(text).substr(0, static_cast<std::size_t>(got)));
}

ordered_json to_json(const Error& error) {
  return {{"state", "failed"},
          {"code", static_cast<int>(error.code)},
          {"happened", json_text(error.happened)},
          {"remedy", json_text(error.remedy)},
          {"os_error", error.os_error}};
}

Error error_from(const json& message) {
  return {static_cast<ErrorCode>(json_unsigned(message, "code").value_or(0)),
          json_string(message, "happened").value_or(""), json_string(message, "remedy").value_or(""),
          static_cast<int>(json_unsigned(message, "os_error").value_or(0))};
}

ordered_json to_json(const Removed& removed) {
  return {{"state", "removed"},
          {"restored", removed.restored},
          {"foreign", removed.foreign},
          {"failed", removed.failed},
          {"inert_bytes", removed.inert_bytes},
          {"stopped_ns", removed.stopped_ns},
          {"handler_kept", removed.handler_kept}};
}

Removed removed_from(const json& message) {
  Removed removed;
  removed.restored = json_unsigned(message, "restored").value_or(0);
  removed.foreign = message.value("foreign", std::vector<std::uint64_t>{});
  removed.failed = message.value("failed", std::vector<std::uint64_t>{});
  removed.inert_bytes = json_unsigned(message, "inert_bytes").value_or(0);
  removed.stopped_ns = json_unsigned(message, "stopped_ns").value_or(0);
  removed.handler_kept = json_bool(message, "handler_kept").value_or(false);
  return removed;
}

/// Who traces the process; 0: nobody.
pid_t tracer_of(pid_t pid) {
  const auto status = read_status(pid);
  return status ? status->tracer_pid.value_or(0) : 0;
}

/// A killed debugger leaves behind the SIGSTOP with which it had stopped a thread or a new child. It shows
/// when the thread gets to run.
void resume_left_stopped(const Target& target, const StubState& state) {
  const auto resume = [](const Target& process) {
    const auto status = read_status(process.pid());
    if (status && status->state == 'T' && status->tracer_pid.value_or(0) == 0)
      ::syscall(SYS_pidfd_send_signal, process.pidfd(), SIGCONT, nullptr, 0);
  };
  resume(target);
  for (const pid_t carrier : find_carriers(state))
    if (const auto child = Target::open(carrier)) resume(*child);
}

/// An exec waits until the other threads are gone, and a traced one is gone when its tracer has taken notice.
/// GDB 13.1 sometimes does not: it waits for a stop of the very thread that waits in exec (seen in 1 of 10
/// execs at full rate). Then all threads but one are zombies, and stay so.
bool waits_in_exec(const Target& target) {
  const auto status = read_status(target.pid());
  if (!status || (status->state != 'D' && status->state != 'Z')) return false;
  std::size_t waiting = 0;
  std::size_t zombies = 0;
  std::size_t others = 0;
  for (const pid_t tid : target.threads()) {
    const auto text = read_file(fmt::format("/proc/{}/task/{}/status", target.pid(), tid));
    const char state = text ? parse_status(*text).state : 'X';
    ++(state == 'D' ? waiting : state == 'Z' ? zombies : others);
  }
  return waiting == 1 && zombies > 0 && others == 0;
}

/// Until an order comes, the other side is gone, or the target has ended. A debugger that dies leaves armed
/// stubs behind, and stopped threads: they are disarmed at once.
void wait_for_end(const Target& target, const StubState& state, const UniqueFd& channel) {
  constexpr int look_every_ms = 20;
  constexpr int looks_after_death = 50;
  constexpr int patience_with_exec = 25;
  pid_t tracer = 0;
  UniqueFd tracer_fd;
  int looks_left = 0;
  int looks_in_exec = 0;
  while (true) {
    pollfd waiting[] = {
        {channel.get(), POLLIN, 0}, {target.pidfd(), POLLIN, 0}, {tracer_fd.get(), POLLIN, 0}};
    if (::poll(waiting, 3, look_every_ms) < 0 && errno != EINTR) return;
    const bool tracer_died = waiting[2].revents != 0;
    if (tracer_died) {
      if (tracer_of(target.pid()) == 0) set_traps(target.pid(), state, Traps::off);
      tracer_fd.reset();
      looks_left = looks_after_death;
    }
    if (looks_left > 0) {
      --looks_left;
      resume_left_stopped(target, state);
    }
    if (waiting[0].revents != 0 || waiting[1].revents != 0) {
      // What a debugger killed in this moment leaves shows a little later.
      for (; looks_left > 0; --looks_left) {
        pollfd ended{target.pidfd(), POLLIN, 0};
        if (::poll(&ended, 1, look_every_ms) > 0) return;
        resume_left_stopped(target, state);
      }
      return;
    }
    const pid_t now = tracer_of(target.pid());
    looks_in_exec = now != 0 && waits_in_exec(target) ? looks_in_exec + 1 : 0;
    // Nothing of ours is left in a process that is in exec: the tracer's death cannot hurt it.
    if (looks_in_exec > patience_with_exec && now == tracer)
      ::syscall(SYS_pidfd_send_signal, tracer_fd.get(), SIGKILL, nullptr, 0);
    if (now == tracer) continue;
    if (tracer != 0 && now == 0) set_traps(target.pid(), state, Traps::off);
    tracer = now;
    tracer_fd = UniqueFd(now == 0 ? -1 : static_cast<int>(::syscall(SYS_pidfd_open, now, 0)));
  }
}

/// A debugger lets go in its own time; without that nobody else can stop the threads.
void wait_for_debugger(const Target& target) {
  constexpr std::uint64_t patience_ns = 90'000'000'000;
  const std::uint64_t deadline = monotonic_ns() + patience_ns;
  while (tracer_of(target.pid()) != 0 && monotonic_ns() < deadline) {
    pollfd ended{target.pidfd(), POLLIN, 0};
    if (::poll(&ended, 1, 10) > 0) return;
  }
}

/// Out of the target and of the children that carry them; the answer is the target's.
Result<Removed> remove_everywhere(const Target& target, const StubState& state) {
  auto removed = remove_stubs(target, state);
  for (const pid_t carrier : find_carriers(state))
    if (const auto child = Target::open(carrier)) (void)remove_stubs(*child, state);
  return removed;
}

/// What a supervisor that was killed has left undone. The file is newer than what it reported at its start.
Result<Removed> remove_in_its_place(const TargetIdentity& identity) {
  const auto target = Target::open(identity.pid);
  if (!target) return tl::make_unexpected(target.error());
  if (target->identity().start_time != identity.start_time)
    return fail(ErrorCode::process_replaced, fmt::format("process {} is another one by now", identity.pid));
  const auto state = load_state(identity);
  if (!state) return tl::make_unexpected(state.error());
  if (!*state) return Removed{};
  return remove_everywhere(*target, **state);
}

}  // namespace

void report_failure(const UniqueFd& channel, const Error& error) {
  send(channel, to_json(error));
}

void supervise(const Target& target, const Plan& plan, StubEngine& engine, const UniqueFd& channel) {
  forget_ended();
  const auto lock = lock_state(target.identity());
  if (!lock) return report_failure(channel, lock.error());
  const auto installed = install_stubs(target, plan, engine);
  if (!installed) return report_failure(channel, installed.error());
  ordered_json report{{"state", "installed"}, {"stopped_ns", installed->stopped_ns}};
  report["left_out"] = ordered_json::array();
  for (const SiteWithoutStub& each : installed->left_out)
    report["left_out"].push_back({{"site", each.site}, {"reason", json_text(each.reason)}});
  // The first threads are enough to learn from; a message has to fit in a socket's buffer.
  constexpr std::size_t most_threads = 1000;
  report["tsc_forbidden"] = engine.tsc_is_forbidden();
  report["threads"] = ordered_json::array();
  for (const ThreadBase& each : engine.thread_bases())
    if (report["threads"].size() < most_threads) report["threads"].push_back({each.tid, each.base});
  send(channel, report, engine.ring_fd());

  wait_for_end(target, installed->state, channel);
  set_traps(target.pid(), installed->state, Traps::off);
  wait_for_debugger(target);
  // Nobody else will take them out: not before it is proven to be impossible is this given up.
  auto removed = remove_everywhere(target, installed->state);
  constexpr int most_tries = 10;
  for (int tries = 1; tries < most_tries && !removed && removed.error().code == ErrorCode::not_stoppable;
       ++tries)
    removed = remove_everywhere(target, installed->state);
  send(channel, removed ? to_json(*removed) : to_json(removed.error()));
}

Result<SupervisedStubs> SupervisedStubs::start(const std::string& program, const Plan& plan,
                                               const std::string& engine) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return fail(ErrorCode::kernel_feature, "socketpair failed", {}, errno);
  UniqueFd own(ends[0]);
  UniqueFd other(ends[1]);
  auto plan_file = memory_file("whomap-plan");
  auto output = memory_file("whomap-supervisor-output");
  if (!plan_file || !output) return tl::make_unexpected((plan_file ? output : plan_file).error());
  const std::string text = dump_line(to_json(plan));
  if (::pwrite(plan_file->get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
    return fail(ErrorCode::output_unwritable, "the plan could not be written to memory", {}, errno);
  Spawn what{{program, "supervise", "--engine", engine, "--plan-fd", std::to_string(plan_file->get()),
              "--channel-fd", std::to_string(other.get())},
             output->get(),
             {plan_file->get(), other.get()},
             {},
             ErrorCode::kernel_feature,
             ""};
  if (const char* const folder = ::getenv("WHOMAP_STATE_DIR"); folder != nullptr)
    what.environment.push_back(fmt::format("WHOMAP_STATE_DIR={}", folder));
  if (const char* const runtime = ::getenv("XDG_RUNTIME_DIR"); runtime != nullptr)
    what.environment.push_back(fmt::format("XDG_RUNTIME_DIR={}", runtime));
  const auto pid = spawn(std::move(what));
  if (!pid) return tl::make_unexpected(pid.error());
  other.reset();
  SupervisedStubs stubs(std::move(own), *pid, {});
  const auto answer = receive(stubs.channel_, &stubs.ring_);
  if (!answer)
    return fail(ErrorCode::kernel_feature,
                fmt::format("the process that puts stubs in ended early: {}", content_of(output->get())));
  if (json_string(*answer, "state") != "installed") return tl::make_unexpected(error_from(*answer));
  auto state = load_state(plan.target);
  if (!state) return tl::make_unexpected(state.error());
  if (!*state) return fail(ErrorCode::process_ended, fmt::format("process {} has ended", plan.target.pid));
  stubs.installed_.state = std::move(**state);
  stubs.installed_.stopped_ns = json_unsigned(*answer, "stopped_ns").value_or(0);
  if (const json* const left_out = json_member(*answer, "left_out"); left_out != nullptr)
    for (const json& each : *left_out)
      stubs.installed_.left_out.push_back(
          {static_cast<std::uint32_t>(json_unsigned(each, "site").value_or(0)),
           json_string(each, "reason").value_or("")});
  stubs.tsc_forbidden_ = json_bool(*answer, "tsc_forbidden").value_or(false);
  if (const json* const threads = json_member(*answer, "threads"); threads != nullptr)
    for (const json& each : *threads)
      stubs.thread_bases_.push_back({each.at(0).get<pid_t>(), each.at(1).get<std::uint64_t>()});
  return stubs;
}

SupervisedStubs::~SupervisedStubs() {
  if (pid_ > 0) (void)remove();
}

Result<Removed> SupervisedStubs::remove() {
  ::shutdown(channel_.get(), SHUT_WR);
  const auto answer = receive(channel_);
  ::waitpid(std::exchange(pid_, -1), nullptr, 0);
  if (!answer) return remove_in_its_place(installed_.state.target);
  if (json_string(*answer, "state") != "removed") return tl::make_unexpected(error_from(*answer));
  return removed_from(*answer);
}

}  // namespace whomap
