// SPDX-License-Identifier: Apache-2.0
#include "core/capture/hit_recorder.h"

#include <sys/ptrace.h>

#include <algorithm>

#include "core/base/clock.h"
#include "core/capture/frame_chain.h"
#include "core/process/memory.h"

namespace whomap {
namespace {

/// Entry time of a call of which only the return is seen: it then counts as entered when it returned, and
/// readers know from the two equal times that the order of such calls is not sure.
constexpr std::uint64_t not_seen = 0;

/// The argument registers of the x86-64 system call convention (System V ABI, A.2.1); they survive the call.
std::array<std::uint64_t, 6> arguments_of(const user_regs_struct& r) {
  return {r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9};
}

}  // namespace

bool PtraceThreads::registers(pid_t tid, user_regs_struct& into) {
  return ::ptrace(PTRACE_GETREGS, tid, nullptr, &into) == 0;
}

std::size_t PtraceThreads::memory(pid_t tid, std::uint64_t address, std::span<std::byte> into) {
  return read_memory(tid, address, into);
}

HitRecorder::HitRecorder(const Plan& plan, std::size_t stack_bytes, StoppedThreads& threads, Send send)
    : sites_(plan.sites),
      stack_(max_stack_copy),
      other_stack_(other_stack_bytes),
      stack_bytes_(std::min(stack_bytes, max_stack_copy)),
      threads_(threads),
      send_(std::move(send)) {}

bool HitRecorder::count_hit(pid_t tid, user_regs_struct& registers) {
  ++counts_.hits;
  if (threads_.registers(tid, registers)) return true;
  ++counts_.unreadable;
  return false;
}

void HitRecorder::at_syscall(std::uint32_t site, pid_t tid) {
  user_regs_struct registers{};
  if (!count_hit(tid, registers)) return;
  // Whatever started at this depth of the stack or deeper is over, return seen or not (longjmp, a
  // restarted call): what returns next belongs to the call that starts here.
  std::vector<Pending>& calls = pending_[tid];
  const auto number = static_cast<std::int64_t>(registers.rax);
  while (!calls.empty() && calls.back().stack_pointer <= registers.rsp) {
    // A signal that came at the breakpoint: the handler has run, and the thread meets it again. No call was
    // made.
    const bool again = calls.back().stack_pointer == registers.rsp && calls.back().site == site &&
                       calls.back().number == number && calls.back().arguments == arguments_of(registers);
    if (!again) ++counts_.unpaired;
    calls.pop_back();
  }
  const std::vector<std::int64_t>& watched = sites_[site].numbers;
  if (std::find(watched.begin(), watched.end(), number) == watched.end()) return;
  calls.push_back({site, registers.rsp, monotonic_ns(), number, arguments_of(registers)});
}

void HitRecorder::at_return(std::uint32_t site, pid_t tid) {
  user_regs_struct registers{};
  if (!count_hit(tid, registers)) return;
  if (sites_[site].watch == WatchKind::return_breakpoint) {
    capture({site, registers.rsp, not_seen, sites_[site].number.value_or(-1), arguments_of(registers)},
            registers, tid);
    return;
  }
  const auto thread = pending_.find(tid);
  if (thread == pending_.end()) return;
  std::vector<Pending>& calls = thread->second;
  while (!calls.empty() && calls.back().stack_pointer < registers.rsp) {
    ++counts_.unpaired;
    calls.pop_back();
  }
  if (calls.empty() || calls.back().stack_pointer != registers.rsp || calls.back().site != site) return;
  const Pending call = calls.back();
  calls.pop_back();
  capture(call, registers, tid);
}

void HitRecorder::at_trap(std::uint32_t site, std::int64_t number, pid_t tid) {
  user_regs_struct registers{};
  if (!count_hit(tid, registers)) return;
  capture({site, registers.rsp, not_seen, number, arguments_of(registers)}, registers, tid);
}

void HitRecorder::capture(const Pending& call, const user_regs_struct& r, pid_t tid) {
  std::size_t wanted = stack_bytes_;
  // glibc and musl put a thread's descriptor, to which fs points, above its stack; the main thread's, and
  // that of a thread on a stack of its own, is below rsp or above that stack too.
  if (r.fs_base > r.rsp) wanted = std::min<std::uint64_t>(wanted, r.fs_base - r.rsp);
  const std::uint64_t copied = threads_.memory(tid, r.rsp, std::span(stack_).first(wanted));
  const std::uint64_t now = monotonic_ns();
  const CallEvent event{call.enter_ns != not_seen ? call.enter_ns : now,
                        now,
                        tid,
                        call.number,
                        call.arguments,
                        r.rax,
                        call.site};
  // rip is that of the plan: a breakpoint may have left it one byte on.
  const Registers start{sites_[call.site].return_address, r.rsp, r.rbp, r.rbx, r.r12, r.r13, r.r14, r.r15};
  StackView stack{r.rsp, std::span(stack_).first(copied)};
  if (const auto other = frame_on_other_stack(r.rbp, r.rsp, stack.bytes)) {
    stack.other_frame = *other;
    stack.other_bytes =
        std::span(other_stack_).first(threads_.memory(tid, *other - other_stack_below, other_stack_));
  }
  if (send_(event, start, stack))
    ++counts_.captured;
  else
    ++counts_.lost;
}

void HitRecorder::stopped_for(std::uint64_t nanoseconds) {
  counts_.stopped_ns += nanoseconds;
  counts_.longest_stop_ns = std::max(counts_.longest_stop_ns, nanoseconds);
}

TracerCounts HitRecorder::counts() const {
  TracerCounts counts = counts_;
  for (const auto& [tid, calls] : pending_) counts.unpaired += calls.size();
  return counts;
}

}  // namespace whomap
