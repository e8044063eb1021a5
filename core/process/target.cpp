// SPDX-License-Identifier: Apache-2.0
#include "core/process/target.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <functional>

#include <fmt/format.h>

#include "core/process/proc_error.h"
#include "core/process/proc_ids.h"

namespace whomap {
namespace {

// Fields of /proc/PID/stat counted from 1 (man 5 proc_pid_stat).
constexpr int field_state = 3;
constexpr int field_flags = 9;
constexpr int field_start_time = 22;
constexpr int field_start_code = 26;
constexpr int field_start_stack = 28;
constexpr std::uint64_t pf_kthread = 0x00200000;  // include/linux/sched.h

/// Field 2 holds the name in parentheses, and the name may hold anything: count from the last ')'.
std::string_view stat_field(std::string_view stat, int field) {
  const std::size_t close = stat.rfind(')');
  if (close == std::string_view::npos) return {};
  std::string_view rest = stat.substr(close + 1);
  for (int at = field_state; !rest.empty(); ++at) {
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    const std::size_t end = std::min(rest.find_first_of(" \n"), rest.size());
    if (at == field) return rest.substr(0, end);
    rest.remove_prefix(end);
  }
  return {};
}

Result<std::uint64_t> stat_number(std::string_view stat, int field) {
  const std::string_view text = stat_field(stat, field);
  std::uint64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || problem != std::errc{})
    return fail(ErrorCode::input_damaged, fmt::format("field {} of /proc/PID/stat is not a number", field));
  return value;
}

std::string link_target(const std::string& link) {
  std::array<char, PATH_MAX> buffer;
  const ssize_t length = ::readlink(link.c_str(), buffer.data(), buffer.size());
  return length < 0 ? std::string{} : std::string(buffer.data(), static_cast<std::size_t>(length));
}

/// exec keeps pid and start time and replaces everything else. The kernel draws a new stack address,
/// and the text's start moves with the program; both are 0 without ptrace access, then the name of
/// the executable alone has to do.
std::uint64_t exec_mark(std::string_view stat, const std::string& exe) {
  return std::hash<std::string>{}(
      fmt::format("{} {} {}", stat_field(stat, field_start_code), stat_field(stat, field_start_stack), exe));
}

tl::unexpected<Error> ended(pid_t pid) {
  return fail(ErrorCode::process_ended, fmt::format("process {} has ended", pid),
              "start again with a new pid");
}

/// No descriptor is left to look with, which says nothing about the process. Any other failure to read a file
/// of its own that everybody may read means that it is gone.
bool is_out_of_files(const Error& error) {
  return error.code == ErrorCode::kernel_feature;
}

bool has_ended(int pidfd) {
  pollfd waiting{pidfd, POLLIN, 0};  // readable once the process has ended (man 2 pidfd_open)
  return ::poll(&waiting, 1, 0) != 0;
}

}  // namespace

Result<std::uint64_t> parse_start_time(std::string_view stat_text) {
  return stat_number(stat_text, field_start_time);
}

Result<Target> Target::open(pid_t pid) {
  if (pid == ::getpid())
    return fail(ErrorCode::own_process, fmt::format("{} is whomap's own process", pid),
                "give the pid of another process");
  const auto status = read_status(pid);
  if (!status) return tl::make_unexpected(status.error());
  if (status->tgid && *status->tgid != pid)
    return fail(ErrorCode::no_such_process, fmt::format("{} is a thread of process {}", pid, *status->tgid),
                fmt::format("give the process: -p {}", *status->tgid));
  if (status->state == 'Z' || status->state == 'X') {
    const bool has_threads = status->threads.value_or(1) > 1;
    return fail(
        ErrorCode::process_zombie,
        fmt::format("process {} ({}) is a zombie{}", pid, status->name,
                    has_threads ? ": its main thread has ended, others live on" : ""),
        has_threads ? "such a process cannot be traced" : "it has ended, only its exit status is left");
  }
  UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd.valid() && errno != ENOSYS) {
    if (errno == ESRCH) return ended(pid);
    return fail(ErrorCode::kernel_feature, fmt::format("pidfd_open({}) failed", pid), {}, errno);
  }
  if (!pidfd.valid())
    return fail(ErrorCode::kernel_feature, "this kernel has no pidfd_open", "Linux 5.3 or later is needed");

  const auto stat = read_proc_file(pid, "stat");
  if (!stat) return tl::make_unexpected(stat.error());
  const auto flags = stat_number(*stat, field_flags);
  const auto start_time = parse_start_time(*stat);
  if (!flags || !start_time) return tl::make_unexpected((flags ? start_time : flags).error());
  if ((*flags & pf_kthread) != 0)
    return fail(ErrorCode::kernel_thread, fmt::format("{} ({}) is a kernel thread", pid, status->name),
                "it has no memory of its own; give the pid of a program");
  TargetIdentity identity{pid, *start_time, link_target(fmt::format("/proc/{}/exe", pid)), status->name};
  if (has_ended(pidfd.get())) return ended(pid);
  const std::uint64_t mark = exec_mark(*stat, identity.exe);
  return Target(std::move(identity), std::move(pidfd), mark);
}

Result<void> Target::check() const {
  if (has_ended(pidfd_.get())) return ended(pid());
  const auto stat = read_proc_file(pid(), "stat");
  if (!stat) return is_out_of_files(stat.error()) ? tl::make_unexpected(stat.error()) : ended(pid());
  if (exec_mark(*stat, link_target(fmt::format("/proc/{}/exe", pid()))) != exec_mark_) {
    // A process that is ending has lost its program and its stack already, which looks like another program.
    const auto status = read_status(pid());
    if (!status && is_out_of_files(status.error())) return tl::make_unexpected(status.error());
    if (!status || !status->vm_rss) return ended(pid());
    return fail(ErrorCode::process_replaced, fmt::format("process {} has exec'd another program", pid()),
                "start again: its code and memory are new");
  }
  return {};
}

std::vector<pid_t> Target::threads() const {
  return proc_ids(fmt::format("/proc/{}/task", pid()));
}

}  // namespace whomap
