// SPDX-License-Identifier: Apache-2.0
#include "core/stub/supervisor.h"

#include <sys/socket.h>
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
#include "core/base/json_fields.h"
#include "core/base/spawn.h"
#include "core/stub/carriers.h"
#include "core/stub/debugger_watch.h"

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
          {"handler_kept", removed.handler_kept},
          {"carriers_left", removed.carriers_left}};
}

Removed removed_from(const json& message) {
  Removed removed;
  removed.restored = json_unsigned(message, "restored").value_or(0);
  removed.foreign = message.value("foreign", std::vector<std::uint64_t>{});
  removed.failed = message.value("failed", std::vector<std::uint64_t>{});
  removed.inert_bytes = json_unsigned(message, "inert_bytes").value_or(0);
  removed.stopped_ns = json_unsigned(message, "stopped_ns").value_or(0);
  removed.handler_kept = json_bool(message, "handler_kept").value_or(false);
  removed.carriers_left = message.value("carriers_left", std::vector<pid_t>{});
  return removed;
}

/// Nobody else will take them out: not before it is proven to be impossible is this given up.
void send_removal(const Target& target, const StubState& state, const UniqueFd& channel) {
  auto removed = remove_everywhere(target, state);
  constexpr int most_tries = 10;
  for (int tries = 1; tries < most_tries && !removed && removed.error().code == ErrorCode::not_stoppable;
       ++tries)
    removed = remove_everywhere(target, state);
  send(channel, removed ? to_json(*removed) : to_json(removed.error()));
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

  wait_for_end(
      target, [&] { return installed->state; }, channel, true);
  set_traps(target.pid(), installed->state, Traps::off);
  constexpr std::uint64_t patience_ns = 90'000'000'000;
  const std::uint64_t deadline = monotonic_ns() + patience_ns;
  wait_for_debugger(target, [&] { return monotonic_ns() > deadline; });
  send_removal(target, installed->state, channel);
}

void stand_by(const Target& target, const UniqueFd& channel) {
  forget_ended();
  const auto lock = lock_state(target.identity());
  if (!lock) return report_failure(channel, lock.error());
  send(channel, {{"state", "standing-by"}});
  const auto stubs = [&target] {
    const auto state = load_state(target.identity());
    return state && *state ? **state : StubState{};
  };
  wait_for_end(target, stubs, channel, false);
  const auto none_left = [&] {
    const StubState state = stubs();
    return (state.jumps.empty() && state.trap_handler == 0) || !is_ours(target.pid(), state);
  };
  set_traps(target.pid(), stubs(), Traps::off);
  wait_for_debugger(target, none_left);  // it may take them out at any time
  if (none_left()) return send(channel, to_json(Removed{}));
  send_removal(target, stubs(), channel);
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
  if (!answer) {
    siginfo_t ended{};  // left to wait for: its removal is still to be done in its place
    if (::waitid(P_PID, static_cast<id_t>(stubs.pid_), &ended, WEXITED | WNOWAIT) == 0 &&
        ended.si_code != CLD_EXITED)
      return fail(ErrorCode::kernel_feature,
                  fmt::format("the process that puts stubs in was killed by signal {}", ended.si_status));
    return fail(ErrorCode::kernel_feature,
                fmt::format("the process that puts stubs in ended early: {}", content_of(output->get())));
  }
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
