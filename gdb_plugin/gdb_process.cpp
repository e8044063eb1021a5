// SPDX-License-Identifier: Apache-2.0
#include "gdb_plugin/gdb_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>

#include <fmt/format.h>

#include "core/base/files.h"
#include "core/base/spawn.h"

namespace whomap {
namespace {

/// PATH and locale and nothing else: PYTHONPATH, GDBHISTFILE, LD_PRELOAD, DEBUGINFOD_URLS and their kind stay
/// out.
std::vector<std::string> clean_environment() {
  const char* path = std::getenv("PATH");
  return {fmt::format("PATH={}", path != nullptr ? path : "/usr/bin:/bin"),
          "LC_ALL=C.UTF-8",
          "TERM=dumb",
          "HOME=/proc/whomap-no-home",
          "PYTHONNOUSERSITE=1",
          "PYTHONDONTWRITEBYTECODE=1"};
}

Spawn gdb_command(std::vector<std::string> arguments, int output, std::vector<int> inherited) {
  return {std::move(arguments),   output,
          std::move(inherited),   clean_environment(),
          ErrorCode::gdb_missing, "install GDB: apt-get install gdb"};
}

/// Runs GDB on nothing with one command; what it printed.
std::string answer_of_gdb(const std::string& gdb, const std::string& command) {
  auto output = memory_file("whomap-gdb-check");
  if (!output) return {};
  const auto child = spawn(gdb_command({gdb, "-nx", "-q", "-batch", "-ex", command}, output->get(), {}));
  if (!child) return {};
  ::waitpid(*child, nullptr, 0);
  return content_of(output->get());
}

bool gdb_answers(const std::string& gdb, const std::string& command, std::string_view expected) {
  return answer_of_gdb(gdb, command).find(expected) != std::string::npos;
}

std::string last_line_of(const std::string& output) {
  std::string last;
  std::istringstream text(output);
  for (std::string line; std::getline(text, line);)
    if (!line.empty()) last = line;
  return last.empty() ? "it printed nothing" : last;
}

std::string signal_name(int signal) {
  const char* const name = ::sigabbrev_np(signal);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

Error without_python(const std::string& gdb) {
  return {ErrorCode::gdb_without_python, fmt::format("{} has no Python inside", gdb),
          "install a GDB with Python: apt-get install gdb (not gdb-minimal)"};
}

}  // namespace

Result<std::string> find_gdb() {
  const auto usable = [](const std::string& path) { return ::access(path.c_str(), X_OK) == 0; };
  if (const char* named = std::getenv("WHOMAP_GDB"); named != nullptr && *named != '\0') {
    if (usable(named)) return std::string(named);
    return fail(ErrorCode::gdb_missing, fmt::format("WHOMAP_GDB names {}, which cannot be executed", named),
                "name an executable gdb, or unset it", errno);
  }
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string candidate = folder + "/gdb";
    if (folder.starts_with('/') && usable(candidate) && !std::filesystem::is_directory(candidate))
      return candidate;
  }
  return fail(ErrorCode::gdb_missing, "gdb is not on PATH",
              "install it (apt-get install gdb), or name it in WHOMAP_GDB");
}

Result<std::string> find_plugin_folder() {
  std::error_code problem;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", problem);
  const auto here = self.parent_path();
  for (const auto& folder : {here / "plugin", here.parent_path() / "lib" / "whomap"})
    if (std::filesystem::exists(folder / "whomap_gdb" / "__init__.py", problem)) return folder.string();
  return fail(ErrorCode::gdb_missing, fmt::format("whomap's GDB plugin is not beside {}", self.string()),
              "build it with ./dev build, or install whomap whole");
}

Result<GdbFacts> examine_gdb() {
  const auto gdb = find_gdb();
  if (!gdb) return tl::make_unexpected(gdb.error());
  const auto folder = find_plugin_folder();
  if (!folder) return tl::make_unexpected(folder.error());
  if (!gdb_answers(*gdb, "echo whomap-runs", "whomap-runs"))
    return fail(ErrorCode::gdb_failed, fmt::format("{} does not run", *gdb), "run it by hand and see why");
  const std::string facts =
      answer_of_gdb(*gdb, "python import sys; print('whomap-facts', gdb.VERSION, sys.version.split()[0])");
  std::istringstream words(facts.substr(std::min(facts.find("whomap-facts "), facts.size())));
  GdbFacts found{*gdb, {}, {}, *folder};
  std::string mark;
  if (!(words >> mark >> found.version >> found.python)) return tl::make_unexpected(without_python(*gdb));
  const nlohmann::json path = *folder;  // a JSON string is one of Python's too
  const std::string loaded = answer_of_gdb(
      *gdb, fmt::format("python import sys; sys.dont_write_bytecode = True; sys.path.insert(0, {}); import "
                        "whomap_gdb.session; print('whomap-' + 'plugin')",
                        path.dump()));
  if (loaded.find("whomap-plugin") == std::string::npos)
    return fail(ErrorCode::gdb_failed,
                fmt::format("{} does not load whomap's plugin: {}", *gdb, last_line_of(loaded)),
                "build whomap anew for the Python in this GDB: ./dev build");
  return found;
}

Result<GdbProcess> GdbProcess::start(const std::string& path, UniqueFd channel,
                                     const WriteScript& write_script) {
  auto script = memory_file("whomap-script");
  auto status = memory_file("whomap-status");
  auto output = memory_file("whomap-gdb-output");
  for (const auto* file : {&script, &status, &output})
    if (!*file) return tl::make_unexpected(file->error());
  const std::string text = write_script(channel.get(), status->get());
  if (::write(script->get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return fail(ErrorCode::output_unwritable, "the script for GDB could not be written to memory", {}, errno);

  GdbProcess process;
  process.path_ = path;
  const auto child =
      spawn(gdb_command({path, "-nx", "-q", "-batch", "-iex", "set auto-load no", "-iex",
                         "set debuginfod enabled off", "-x", fmt::format("/proc/self/fd/{}", script->get())},
                        output->get(), {script->get(), status->get(), channel.get()}));
  if (!child) return tl::make_unexpected(child.error());
  process.pid_ = *child;
  process.pidfd_ = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, *child, 0)));
  process.status_ = std::move(*status);
  process.output_ = std::move(*output);
  return process;
}

GdbProcess::GdbProcess(GdbProcess&& other) noexcept
    : path_(std::move(other.path_)),
      pid_(std::exchange(other.pid_, -1)),
      ending_signal_(other.ending_signal_),
      pidfd_(std::move(other.pidfd_)),
      status_(std::move(other.status_)),
      output_(std::move(other.output_)) {}

GdbProcess::~GdbProcess() {
  if (pid_ > 0) wait(0);
}

bool GdbProcess::reap(int milliseconds) {
  pollfd waiting{pidfd_.get(), POLLIN, 0};
  while (::poll(&waiting, 1, milliseconds) < 0 && errno == EINTR) {
  }
  int status = 0;
  const pid_t ended = ::waitpid(pid_, &status, WNOHANG);
  if (ended == 0) return false;
  if (ended == pid_ && WIFSIGNALED(status)) ending_signal_ = WTERMSIG(status);
  pid_ = -1;
  return true;
}

bool GdbProcess::wait(double patience_seconds, const std::function<void()>& before_kill) {
  if (pid_ <= 0 || reap(static_cast<int>(patience_seconds * 1000))) return true;
  constexpr int patience_after_hup_ms = 60'000;
  constexpr int settle_ms = 200;  // for threads that have hit a breakpoint already
  ::kill(pid_, SIGHUP);
  ::kill(pid_, SIGCONT);
  if (reap(patience_after_hup_ms)) return false;
  before_kill();
  if (reap(settle_ms)) return false;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
  return false;
}

std::vector<nlohmann::json> GdbProcess::status() const {
  std::vector<nlohmann::json> lines;
  std::istringstream text(content_of(status_.get()));
  for (std::string line; std::getline(text, line);)
    if (auto json = nlohmann::json::parse(line, nullptr, false); json.is_object())
      lines.push_back(std::move(json));
  return lines;
}

std::string GdbProcess::output() const {
  return content_of(output_.get());
}

Error GdbProcess::diagnose() const {
  for (const auto& line : status())
    if (line.value("state", "") == "failed")
      return {ErrorCode::gdb_failed,
              fmt::format("GDB could not trace: {}", line.value("error", "no reason given")),
              "see what GDB printed with -v"};
  if (ending_signal_ != 0)
    return {ErrorCode::gdb_failed,
            fmt::format("GDB was killed by {} before it traced", signal_name(ending_signal_)),
            "if it did not crash by itself, somebody ended it (kill, the out-of-memory killer); see what it "
            "printed with -v"};
  if (gdb_answers(path_, "echo whomap-runs", "whomap-runs") &&
      !gdb_answers(path_, "python print('whomap' + '-python')", "whomap-python"))
    return without_python(path_);
  return {ErrorCode::gdb_failed, fmt::format("GDB ended before it traced: {}", last_line_of(output())),
          "see what GDB printed with -v"};
}

}  // namespace whomap
