// SPDX-License-Identifier: Apache-2.0
#include "core/stub/call_filters.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/ptrace.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <vector>

#include <fmt/format.h>

#include "core/base/files.h"

namespace whomap {
namespace {

/// linux/ptrace.h, which cannot be included beside sys/ptrace.h.
constexpr auto get_dispatch_config = static_cast<__ptrace_request>(0x4211);
struct DispatchConfig {
  std::uint64_t mode, selector, offset, length;
};

constexpr const char* without_stubs = "--engine gdb does without stubs where they cannot be";

bool reads_instruction_pointer(const sock_filter& each) {
  constexpr std::uint32_t first = offsetof(seccomp_data, instruction_pointer);
  const bool loads = BPF_CLASS(each.code) == BPF_LD || BPF_CLASS(each.code) == BPF_LDX;
  return loads && BPF_MODE(each.code) == BPF_ABS && each.k >= first && each.k < first + sizeof(std::uint64_t);
}

Result<void> check_filters_of(pid_t tid) {
  for (unsigned long index = 0;; ++index) {
    std::array<sock_filter, BPF_MAXINSNS> filter{};
    const long length =
        ::ptrace(PTRACE_SECCOMP_GET_FILTER, tid, reinterpret_cast<void*>(index), filter.data());
    if (length < 0 && errno == ENOENT) return {};
    if (length < 0)
      return fail(ErrorCode::unsupported_target,
                  fmt::format("the seccomp filter of thread {} cannot be read", tid),
                  "root and a kernel with CONFIG_CHECKPOINT_RESTORE are needed for stubs", errno);
    if (std::any_of(filter.begin(), filter.begin() + length, reads_instruction_pointer))
      return fail(ErrorCode::unsupported_target,
                  fmt::format("the seccomp filter of thread {} looks at the address of the call", tid),
                  without_stubs);
  }
}

}  // namespace

std::vector<pid_t> filtered_threads(const Target& target) {
  std::vector<pid_t> filtered;
  for (const pid_t tid : target.threads()) {
    const auto text = read_file(fmt::format("/proc/{}/task/{}/status", target.pid(), tid));
    if (text && parse_status(*text).seccomp.value_or(0) == SECCOMP_MODE_FILTER) filtered.push_back(tid);
  }
  return filtered;
}

Result<void> check_call_filters(const Standstill& stillness, const std::vector<pid_t>& filtered) {
  for (const pid_t tid : stillness.threads()) {
    DispatchConfig config{};
    if (::ptrace(get_dispatch_config, tid, reinterpret_cast<void*>(sizeof config), &config) == 0 &&
        config.mode != 0)
      return fail(
          ErrorCode::unsupported_target,
          fmt::format("thread {} uses Syscall User Dispatch, which looks at the address of a call", tid),
          without_stubs);
  }
  for (const pid_t tid : filtered)
    if (std::find(stillness.threads().begin(), stillness.threads().end(), tid) != stillness.threads().end())
      if (auto checked = check_filters_of(tid); !checked) return checked;
  return {};
}

}  // namespace whomap
