// SPDX-License-Identifier: Apache-2.0
#include "core/base/spawn.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include <fmt/format.h>

namespace whomap {
namespace {

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& each : strings) result.push_back(each.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

Result<pid_t> spawn(Spawn what) {
  const std::vector<char*> argv = pointers(what.arguments);
  const std::vector<char*> envp = pointers(what.environment);
  std::array<int, 2> report{};
  if (::pipe2(report.data(), O_CLOEXEC) != 0)
    return fail(ErrorCode::kernel_feature, "pipe2 failed", {}, errno);
  const UniqueFd read_end(report[0]);
  UniqueFd write_end(report[1]);
  const pid_t child = ::fork();
  if (child < 0) return fail(ErrorCode::kernel_feature, "fork failed", {}, errno);
  if (child == 0) {
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::signal(SIGPIPE, SIG_DFL);
    ::signal(SIGXFSZ, SIG_DFL);
    ::setsid();
    const int nothing = ::open("/dev/null", O_RDONLY);
    const bool ready = nothing >= 0 && ::dup2(nothing, 0) == 0 && ::dup2(what.output, 1) == 1 &&
                       ::dup2(what.output, 2) == 2 && ::chdir("/") == 0;
    for (const int fd : what.inherited) ::fcntl(fd, F_SETFD, 0);
    if (ready) ::execve(argv[0], argv.data(), envp.data());
    const int why = errno;
    (void)!::write(report[1], &why, sizeof why);
    ::_exit(127);
  }
  write_end.reset();
  int why = 0;
  if (::read(read_end.get(), &why, sizeof why) == sizeof why) {
    ::waitpid(child, nullptr, 0);
    return fail(what.missing, fmt::format("{} cannot be executed", what.arguments.front()), what.remedy, why);
  }
  return child;
}

Result<UniqueFd> memory_file(const char* name) {
  UniqueFd fd(::memfd_create(name, MFD_CLOEXEC));
  if (!fd.valid()) return fail(ErrorCode::kernel_feature, "memfd_create failed", {}, errno);
  return fd;
}

std::string content_of(int fd) {
  std::string content;
  std::array<char, 4096> chunk;
  for (ssize_t got = 0;
       (got = ::pread(fd, chunk.data(), chunk.size(), static_cast<off_t>(content.size()))) > 0;)
    content.append(chunk.data(), static_cast<std::size_t>(got));
  return content;
}

}  // namespace whomap
