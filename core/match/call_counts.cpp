// SPDX-License-Identifier: Apache-2.0
#include "core/match/call_counts.h"

#include <algorithm>
#include <iterator>

#include "core/process/syscalls.h"

namespace whomap {
namespace {

constexpr std::int64_t nr_mmap = 9, nr_munmap = 11, nr_brk = 12, nr_mremap = 25;

void add_saturating(std::uint64_t& sum, std::uint64_t more) {
  sum = more > std::numeric_limits<std::uint64_t>::max() - sum ? std::numeric_limits<std::uint64_t>::max()
                                                               : sum + more;
}

/// A raw brk that fails returns the break as it was (man 2 brk).
bool has_failed(const CallEvent& call) {
  return call.number == nr_brk ? call.arguments[0] != 0 && call.result != call.arguments[0]
                               : is_syscall_error(call.result);
}

}  // namespace

std::uint32_t CallCounts::row_of(const TraceEvent& event) {
  // Numbers of calls fit: readers of traces refuse those above 2^31 - 1.
  const std::uint64_t key =
      static_cast<std::uint64_t>(event.stack) << 32 | static_cast<std::uint32_t>(event.call.number);
  const auto [at, fresh] = row_by_key_.try_emplace(key, static_cast<std::uint32_t>(rows_.size()));
  if (fresh) {
    RowCounts& row = rows_.emplace_back();
    row.key = {event.stack, event.call.number};
    row.site = event.call.site;
    threads_.emplace_back();
  }
  return at->second;
}

bool CallCounts::add_thread(Threads& threads, pid_t tid) {
  const auto [at, fresh] =
      thread_numbers_.try_emplace(tid, static_cast<std::uint32_t>(thread_numbers_.size()));
  const std::uint32_t number = at->second;
  if (number >= 64 * std::size(threads.early)) return threads.others.insert(number).second;
  std::uint64_t& bits = threads.early[number / 64];
  const std::uint64_t bit = std::uint64_t{1} << (number % 64);
  const bool is_new = (bits & bit) == 0;
  bits |= bit;
  return is_new;
}

void CallCounts::add(const TraceEvent& event) {
  const CallEvent& call = event.call;
  ++events_;
  first_ns_ = std::min(first_ns_, call.exit_ns);
  last_ns_ = std::max(last_ns_, call.exit_ns);
  const std::uint32_t at = row_of(event);
  RowCounts& row = rows_[at];
  row.first_ns = std::min(row.first_ns, call.exit_ns);
  row.last_ns = std::max(row.last_ns, call.exit_ns);
  if (add_thread(threads_[at], call.tid)) ++row.threads;
  if (has_failed(call)) {
    ++row.failed;
    ++failed_;
    return;
  }
  ++row.count;
  if (call.number == nr_mmap) add_saturating(row.mapped_bytes, call.arguments[1]);
  if (call.number == nr_munmap) add_saturating(row.unmapped_bytes, call.arguments[1]);
  if (call.number == nr_mremap && call.arguments[2] > call.arguments[1])
    add_saturating(row.mapped_bytes, call.arguments[2] - call.arguments[1]);
}

}  // namespace whomap
