// SPDX-License-Identifier: Apache-2.0
#include "core/verify/process_table.h"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "core/process/proc_error.h"
#include "core/process/proc_ids.h"
#include "core/process/status.h"
#include "core/process/target.h"

namespace whomap {
namespace {

/// The next number of `text`, which is taken off.
std::optional<pid_t> take_number(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  pid_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

std::optional<pid_t> whole_number(std::string_view name) {
  auto number = take_number(name);
  return name.empty() ? number : std::nullopt;
}

/// Init of its pid namespace: the last number of NSpid is 1 (man 5 proc_pid_status).
bool is_init(pid_t pid) {
  const auto status = read_status(pid);
  if (!status) return false;
  const auto found = status->fields.find("NSpid");
  if (found == status->fields.end()) return pid == 1;
  const std::string& pids = found->second;
  return pids.substr(pids.find_last_of(" \t") + 1) == "1";
}

bool same_program(pid_t a, pid_t b) {
  struct stat first {
  }, second{};
  return ::stat(fmt::format("/proc/{}/exe", a).c_str(), &first) == 0 &&
         ::stat(fmt::format("/proc/{}/exe", b).c_str(), &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

}  // namespace

std::optional<ProcessEntry> parse_process_entry(std::string_view stat_text) {
  ProcessEntry entry;
  // The name in the parentheses may hold anything, also ") S 1".
  const std::size_t close = stat_text.rfind(')');
  if (close == std::string_view::npos || close + 2 >= stat_text.size()) return std::nullopt;
  std::string_view head = stat_text.substr(0, stat_text.find(' '));
  std::string_view rest = stat_text.substr(close + 2);
  entry.state = rest.front();
  rest.remove_prefix(1);
  const auto pid = whole_number(head);
  const auto parent = take_number(rest);
  const auto group = take_number(rest);
  const auto session = take_number(rest);
  const auto start_time = parse_start_time(stat_text);
  if (!pid || !parent || !group || !session || !start_time) return std::nullopt;
  entry.pid = *pid;
  entry.parent = *parent;
  entry.group = *group;
  entry.start_time = *start_time;
  entry.session = *session;
  return entry;
}

std::vector<ProcessEntry> read_process_table() {
  std::vector<ProcessEntry> table;
  for (const pid_t pid : proc_ids("/proc")) {
    const auto stat = read_proc_file(pid, "stat");
    if (!stat) continue;  // it ended between the two reads
    if (const auto entry = parse_process_entry(*stat)) table.push_back(*entry);
  }
  return table;
}

std::vector<ProcessEntry> descendants_of(pid_t root, pid_t without, const std::vector<ProcessEntry>& table) {
  std::vector<ProcessEntry> found;
  std::vector<pid_t> parents{root};
  // The table is no snapshot, and a reused pid could close a circle: each pid is taken once.
  std::vector<bool> taken(table.size(), false);
  for (std::size_t at = 0; at < parents.size(); ++at) {
    for (std::size_t i = 0; i < table.size(); ++i) {
      const ProcessEntry& entry = table[i];
      if (taken[i] || entry.parent != parents[at] || entry.pid == root || entry.pid == without) continue;
      taken[i] = true;
      found.push_back(entry);
      parents.push_back(entry.pid);
    }
  }
  return found;
}

bool has_environment(pid_t pid, std::string_view variable) {
  const auto environment = read_proc_file(pid, "environ");
  if (!environment) return false;
  std::string_view rest = *environment;
  while (!rest.empty()) {
    const std::size_t end = rest.find('\0');
    if (rest.substr(0, end) == variable) return true;
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  return false;
}

std::vector<ProcessEntry> likely_orphans(const ProcessEntry& root, const std::vector<ProcessEntry>& tree,
                                         const std::vector<ProcessEntry>& table) {
  std::vector<ProcessEntry> found;
  for (const ProcessEntry& entry : table) {
    const bool inside = std::any_of(tree.begin(), tree.end(),
                                    [&](const ProcessEntry& member) { return member.pid == entry.pid; });
    if (inside || entry.pid == root.pid || entry.state == 'Z' || entry.start_time < root.start_time) continue;
    if (entry.session != root.session && !same_program(entry.pid, root.pid)) continue;
    if (is_init(entry.parent)) found.push_back(entry);
  }
  return found;
}

}  // namespace whomap
