// SPDX-License-Identifier: Apache-2.0
#include "core/process/hit_counter.h"

#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace whomap {
namespace {

Result<UniqueFd> open_counter(pid_t tid, std::uint64_t address) {
  perf_event_attr attributes{};
  attributes.size = sizeof attributes;
  attributes.type = PERF_TYPE_BREAKPOINT;
  attributes.bp_type = HW_BREAKPOINT_X;
  attributes.bp_addr = address;
  attributes.bp_len =
      sizeof(long);  // what the kernel wants for execution breakpoints on x86 (arch_build_bp_info)
  attributes.disabled = 1;
  attributes.inherit = 1;
  attributes.exclude_kernel = 1;
  attributes.exclude_hv = 1;
  UniqueFd fd(
      static_cast<int>(::syscall(SYS_perf_event_open, &attributes, tid, -1, -1, PERF_FLAG_FD_CLOEXEC)));
  if (fd.valid()) return fd;
  const bool refused = errno == EACCES || errno == EPERM;
  return fail(refused ? ErrorCode::not_permitted : ErrorCode::kernel_feature,
              "the kernel gives no counter for hits (perf_event_open)",
              refused ? "run as root, or lower kernel.perf_event_paranoid" : "leave --observe out", errno);
}

}  // namespace

Result<HitCounter> HitCounter::open(const Target& target, std::uint64_t address) {
  std::vector<UniqueFd> threads;
  for (const pid_t tid : target.threads()) {
    auto fd = open_counter(tid, address);
    if (fd)
      threads.push_back(std::move(*fd));
    else if (fd.error().os_error != ESRCH)
      return tl::make_unexpected(fd.error());  // ESRCH: that thread has ended
  }
  return HitCounter(std::move(threads));
}

void HitCounter::enable(bool on) const {
  for (const UniqueFd& fd : threads_)
    (void)::ioctl(fd.get(), on ? PERF_EVENT_IOC_ENABLE : PERF_EVENT_IOC_DISABLE, 0);
}

std::uint64_t HitCounter::read() const {
  std::uint64_t sum = 0;
  for (const UniqueFd& fd : threads_) {
    std::uint64_t value = 0;
    if (::read(fd.get(), &value, sizeof value) == sizeof value) sum += value;
  }
  return sum;
}

/// A counter needs a descriptor for every thread; the soft limit is often 1024.
void allow_many_descriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace whomap
