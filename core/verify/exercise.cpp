// SPDX-License-Identifier: Apache-2.0
#include "core/verify/exercise.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include <fmt/format.h>

namespace whomap {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t longest_last_words = 200;

/// The last line that says something.
std::string last_line(std::string_view text) {
  const std::size_t end = text.find_last_not_of(" \t\r\n");
  if (end == std::string_view::npos) return {};
  text = text.substr(0, end + 1);
  const std::size_t newline = text.rfind('\n');
  return std::string(newline == std::string_view::npos ? text : text.substr(newline + 1));
}

}  // namespace

Result<Exercise> Exercise::create(ExerciseRecord& record,
                                  std::vector<std::pair<std::string, std::string>> environment,
                                  double timeout_seconds) {
  auto group = ProcessGroup::create();
  if (!group) return tl::make_unexpected(group.error());
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) return fail(ErrorCode::kernel_feature, "pipe2 failed", {}, errno);
  // Only our end: O_NONBLOCK on the other would surprise the programs that write to it.
  ::fcntl(pipe[0], F_SETFL, O_NONBLOCK);
  return Exercise(record, std::move(environment), timeout_seconds, std::move(*group), UniqueFd(pipe[0]),
                  UniqueFd(pipe[1]));
}

void Exercise::drain(std::string& last_words) const {
  std::array<char, 4096> chunk;
  for (ssize_t got = 0; (got = ::read(output_read_.get(), chunk.data(), chunk.size())) > 0;) {
    last_words.append(chunk.data(), static_cast<std::size_t>(got));
    if (last_words.size() > longest_last_words) last_words.erase(0, last_words.size() - longest_last_words);
    if (static_cast<std::size_t>(got) < chunk.size()) return;  // a writer that never stops must not keep us
  }
}

void Exercise::count(int wait_status, bool timed_out, const std::string& last_words) const {
  if (!timed_out && WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0) {
    ++record_->succeeded;
    return;
  }
  ++record_->failed;
  if (timed_out) ++record_->timed_out;
  if (!record_->first_failure.empty()) return;
  record_->first_failure =
      timed_out ? fmt::format("not done after {:g} s", timeout_seconds_) : ending_text(wait_status);
  if (const std::string line = last_line(last_words); !line.empty())
    record_->first_failure += fmt::format(", \"{}\"", printable(line));
}

Result<Exercise::Ended> Exercise::run(const std::vector<int>& watched) {
  const auto child = group_.start({{"/bin/sh", "-c", record_->command}, environment_, output_write_.get()});
  if (!child) return tl::make_unexpected(child.error());
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(timeout_seconds_));
  std::vector<pollfd> waiting{{child->pidfd.get(), POLLIN, 0}, {output_read_.get(), POLLIN, 0}};
  for (const int fd : watched) waiting.push_back({fd, POLLIN, 0});
  std::string last_words;
  bool timed_out = false;
  bool given_up = false;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    const int ready =
        ::poll(waiting.data(), waiting.size(), static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000)));
    if (ready < 0 && errno != EINTR) return fail(ErrorCode::kernel_feature, "poll failed", {}, errno);
    if (ready < 0) continue;
    if ((waiting[1].revents & POLLIN) != 0) drain(last_words);
    if (waiting[0].revents != 0) break;
    given_up =
        std::any_of(waiting.begin() + 2, waiting.end(), [](const pollfd& each) { return each.revents != 0; });
    timed_out = Clock::now() >= deadline;
    if (given_up || timed_out) {
      ::kill(child->pid, SIGKILL);
      break;
    }
  }
  int wait_status = 0;
  while (::waitpid(child->pid, &wait_status, 0) < 0 && errno == EINTR) {
  }
  if (given_up || timed_out) {
    // Not only the shell: what it had started hangs too.
    auto fresh = ProcessGroup::create();
    if (!fresh) return tl::make_unexpected(fresh.error());
    group_ = std::move(*fresh);
  }
  if (given_up) return Ended::given_up;
  drain(last_words);
  count(wait_status, timed_out, last_words);
  return Ended::by_itself;
}

}  // namespace whomap
