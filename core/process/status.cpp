// SPDX-License-Identifier: Apache-2.0
#include "core/process/status.h"

#include <charconv>

#include "core/base/lines.h"
#include "core/process/proc_error.h"

namespace whomap {
namespace {

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

template <class Number>
std::optional<Number> number_in(std::string_view text, int base = 10) {
  Number value{};
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (problem != std::errc{}) return std::nullopt;
  return value;
}

/// Field number `index` of a line of numbers separated by tabs, such as "Uid:  real effective saved fs".
std::string_view column(std::string_view text, int index) {
  for (; index > 0; --index) {
    const auto tab = text.find_first_of(" \t");
    if (tab == std::string_view::npos) return {};
    text = trimmed(text.substr(tab));
  }
  return text;
}

}  // namespace

ProcessStatus parse_status(std::string_view text) {
  ProcessStatus status;
  while (!text.empty()) {
    const std::string_view line = next_line(text);
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    status.fields.insert_or_assign(std::string(line.substr(0, colon)),
                                   std::string(trimmed(line.substr(colon + 1))));
  }
  const auto value = [&](const char* name) -> std::string_view {
    const auto found = status.fields.find(name);
    return found == status.fields.end() ? std::string_view{} : std::string_view(found->second);
  };
  const auto bytes = [&](const char* name) -> std::optional<std::uint64_t> {
    constexpr std::uint64_t kib = 1024;  // "kB" in /proc is 1024 bytes (man 5 proc_pid_status)
    const auto size = number_in<std::uint64_t>(value(name));
    if (!size || *size > ~std::uint64_t{0} / kib) return std::nullopt;
    return *size * kib;
  };
  status.name = value("Name");
  if (const auto state = value("State"); !state.empty()) status.state = state.front();
  status.tgid = number_in<pid_t>(value("Tgid"));
  status.ppid = number_in<pid_t>(value("PPid"));
  status.tracer_pid = number_in<pid_t>(value("TracerPid"));
  status.real_uid = number_in<uid_t>(value("Uid"));
  status.effective_uid = number_in<uid_t>(column(value("Uid"), 1));
  status.vm_rss = bytes("VmRSS");
  status.rss_anon = bytes("RssAnon");
  status.rss_file = bytes("RssFile");
  status.rss_shmem = bytes("RssShmem");
  status.vm_swap = bytes("VmSwap");
  status.vm_pte = bytes("VmPTE");
  status.vm_data = bytes("VmData");
  status.threads = number_in<std::uint64_t>(value("Threads"));
  status.effective_capabilities = number_in<std::uint64_t>(value("CapEff"), 16);
  status.seccomp = number_in<int>(value("Seccomp"));
  return status;
}

Result<ProcessStatus> read_status(pid_t pid) {
  auto text = read_proc_file(pid, "status");
  if (!text) return tl::make_unexpected(text.error());
  return parse_status(*text);
}

}  // namespace whomap
