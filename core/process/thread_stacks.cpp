// SPDX-License-Identifier: Apache-2.0
#include "core/process/thread_stacks.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include <fmt/format.h>

#include "core/base/files.h"

namespace whomap {
namespace {

std::optional<std::uint64_t> stack_limit(pid_t pid) {
  rlimit limit{};
  if (::prlimit(pid, RLIMIT_STACK, nullptr, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return std::nullopt;
  return limit.rlim_cur;
}

}  // namespace

std::optional<std::uint64_t> parse_stack_pointer(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  const std::size_t last = text.rfind(' ');
  if (last == std::string_view::npos) return std::nullopt;
  text = text.substr(0, last);
  const std::size_t before = text.rfind(' ');
  if (before == std::string_view::npos) return std::nullopt;
  text = text.substr(before + 1);
  if (!text.starts_with("0x")) return std::nullopt;
  std::uint64_t pointer = 0;
  const auto [rest, problem] = std::from_chars(text.data() + 2, text.data() + text.size(), pointer, 16);
  if (problem != std::errc{} || rest != text.data() + text.size()) return std::nullopt;
  return pointer;
}

ThreadStacks read_thread_stacks(const Target& target) {
  ThreadStacks stacks;
  std::vector<pid_t> waiting = target.threads();
  if (waiting.empty() || waiting.size() > thread_stack_limit) return stacks;
  stacks.looked = true;
  stacks.limit = stack_limit(target.pid());
  constexpr int rounds = 3;
  for (int round = 0; round < rounds && !waiting.empty(); ++round) {
    std::vector<pid_t> running;
    for (const pid_t thread : waiting) {
      const auto text = read_file(fmt::format("/proc/{}/task/{}/syscall", target.pid(), thread));
      if (!text) {
        if (text.error().os_error == ENOENT || text.error().os_error == ESRCH) continue;  // it has ended
        running.push_back(thread);
      } else if (const auto pointer = parse_stack_pointer(*text)) {
        stacks.seen.push_back({thread, *pointer});
      } else {
        running.push_back(thread);
      }
    }
    waiting = std::move(running);
  }
  stacks.unseen = waiting.size();
  std::sort(stacks.seen.begin(), stacks.seen.end(),
            [](const ThreadStack& left, const ThreadStack& right) { return left.pointer < right.pointer; });
  return stacks;
}

std::span<const ThreadStack> ThreadStacks::threads_in(AddressRange range) const {
  const auto from = [&](std::uint64_t address) {
    return std::lower_bound(seen.begin(), seen.end(), address,
                            [](const ThreadStack& each, std::uint64_t at) { return each.pointer < at; });
  };
  return {from(range.start), from(range.end)};
}

}  // namespace whomap
