// SPDX-License-Identifier: Apache-2.0
#include "cli/verify_trace.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "cli/live.h"
#include "cli/probe_engine.h"
#include "core/base/files.h"
#include "gdb_plugin/gdb_process.h"

namespace whomap::cli {
namespace {

using Clock = std::chrono::steady_clock;

Result<UniqueFd> private_file(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd.valid())
    return fail(ErrorCode::output_unwritable, fmt::format("cannot create {}", path), {}, errno);
  return fd;
}

/// The first snapshot is written when all sites are watched.
bool is_watching(const std::string& trace_file) {
  const auto text = read_file(trace_file);
  return text && text->find(R"("type":"snapshot")") != std::string::npos;
}

std::string last_line_of(const std::string& path) {
  auto text = read_file(path).value_or("");
  while (!text.empty() && text.back() == '\n') text.pop_back();
  text = text.substr(text.rfind('\n') + 1);
  constexpr std::string_view prefix = "whomap: ";
  return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
}

}  // namespace

std::optional<Error> EffectTrace::obstacle(std::optional<pid_t> pid) {
  if (!pid) return std::nullopt;
  std::optional<Error> reason;
  if (const auto target = open_target(*pid); !target) {
    reason = target.error();
  } else if (const auto plan = plan_for(*target, {}, {}); !plan) {
    reason = plan.error();
  } else if (!sites_without_stub(*plan).empty()) {  // these take GDB
    if (const auto gdb = find_gdb(); !gdb) reason = gdb.error();
  }
  if (reason) reason->happened = "--gone and --present need a trace: " + reason->happened;
  return reason;
}

Result<EffectTrace> EffectTrace::start(pid_t pid, double seconds, int interrupt_fd) {
  std::error_code problem;
  const auto place = std::filesystem::temp_directory_path(problem);
  std::string folder = (problem ? "/tmp" : place.string()) + "/whomap-verify-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr)
    return fail(ErrorCode::output_unwritable, fmt::format("cannot create a folder in {}", place.string()),
                "set TMPDIR to a writable one", errno);
  EffectTrace trace(folder, {});
  const auto report = private_file(folder + "/report.json");
  if (!report) return tl::make_unexpected(report.error());
  const auto messages = private_file(folder + "/messages");
  if (!messages) return tl::make_unexpected(messages.error());
  Launch launch;
  launch.arguments = {"/proc/self/exe",
                      "trace",
                      "-p",
                      fmt::format("{}", pid),
                      "-d",
                      fmt::format("{:.0f}", seconds),
                      "--format",
                      "json",
                      "-q",
                      "-o",
                      folder + "/trace"};
  launch.output = report->get();
  launch.errors = messages->get();
  launch.death_signal = SIGTERM;  // it lets the target go and ends; SIGKILL would leave that to others
  auto child = start_program(launch, 0);
  if (!child) return tl::make_unexpected(child.error());
  trace.child_ = std::move(*child);

  constexpr auto patience = std::chrono::seconds(90);  // symbols of a large target
  const auto deadline = Clock::now() + patience;
  while (!is_watching(folder + "/trace")) {
    if (const int status = trace.wait(0); status >= 0) return tl::make_unexpected(trace.failure(status));
    if (Clock::now() > deadline)
      return fail(ErrorCode::gdb_failed, "whomap trace did not start to watch in time",
                  "try whomap trace alone");
    pollfd waiting[] = {{interrupt_fd, POLLIN, 0}, {trace.child_.pidfd.get(), POLLIN, 0}};
    constexpr int look_again_ms = 50;
    if (::poll(waiting, 2, look_again_ms) > 0 && waiting[0].revents != 0)
      return fail(ErrorCode::interrupted, "interrupted");
  }
  return trace;
}

EffectTrace::EffectTrace(EffectTrace&& other) noexcept
    : folder_(std::exchange(other.folder_, {})),
      child_(std::move(other.child_)),
      exit_status_(other.exit_status_) {
  other.child_.pid = -1;
}

EffectTrace::~EffectTrace() {
  if (child_.pid > 0) {
    ::kill(child_.pid, SIGTERM);
    constexpr int patience_ms = 30'000;
    if (wait(patience_ms) < 0) {
      ::kill(child_.pid, SIGKILL);
      ::waitpid(child_.pid, nullptr, 0);
    }
  }
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

int EffectTrace::wait(int milliseconds) {
  if (child_.pid <= 0) return exit_status_;
  pollfd waiting{child_.pidfd.get(), POLLIN, 0};
  if (::poll(&waiting, 1, milliseconds) <= 0) return -1;
  int status = 0;
  if (::waitpid(child_.pid, &status, WNOHANG) != child_.pid) return -1;
  child_.pid = -1;
  constexpr int shell_signal_base = 128;
  exit_status_ = WIFEXITED(status) ? WEXITSTATUS(status) : shell_signal_base + WTERMSIG(status);
  return exit_status_;
}

Error EffectTrace::failure(int exit_status) const {
  std::string words = last_line_of(folder_ + "/messages");
  if (words.empty()) words = fmt::format("it ended with status {}", exit_status);
  const auto code = exit_status == static_cast<int>(ExitStatus::no_process)      ? ErrorCode::no_such_process
                    : exit_status == static_cast<int>(ExitStatus::not_permitted) ? ErrorCode::not_permitted
                    : exit_status == static_cast<int>(ExitStatus::output) ? ErrorCode::output_unwritable
                                                                          : ErrorCode::gdb_failed;
  return {code, "the trace for --gone and --present failed: " + words, {}, 0};
}

Result<std::string> EffectTrace::finish() {
  if (child_.pid > 0) ::kill(child_.pid, SIGINT);
  constexpr int patience_ms = 120'000;  // unwinding and naming what was captured
  const int status = wait(patience_ms);
  if (status < 0)
    return fail(ErrorCode::gdb_failed, "whomap trace did not end in time", "try whomap trace alone");
  // Done, nothing found, the target ended, or interrupted as it was: each has a report.
  auto report = read_file(folder_ + "/report.json");
  if (!report || report->empty()) return tl::make_unexpected(failure(status));
  return report;
}

}  // namespace whomap::cli
