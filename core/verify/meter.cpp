// SPDX-License-Identifier: Apache-2.0
#include "core/verify/meter.h"

#include <time.h>

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "core/process/own_memory.h"
#include "core/process/proc_error.h"
#include "core/process/status.h"

namespace whomap {
namespace {

using Clock = std::chrono::steady_clock;
using Size = std::optional<std::uint64_t>;

constexpr Size MemoryUse::*all_sizes[] = {
    &MemoryUse::rss,       &MemoryUse::rss_anon, &MemoryUse::rss_file,
    &MemoryUse::rss_shmem, &MemoryUse::swap,     &MemoryUse::page_tables,
    &MemoryUse::lazy_free, &MemoryUse::mappings, &MemoryUse::threads};

/// A sum with an unknown part is unknown.
void add(MemoryUse& sum, const MemoryUse& part) {
  for (const auto size : all_sizes) {
    if (sum.*size && part.*size)
      *(sum.*size) += *(part.*size);
    else
      sum.*size = std::nullopt;
  }
}

/// Without the shared memory of a trace that runs for --gone.
MemoryUse memory_of(pid_t pid, const ProcessStatus& status) {
  MemoryUse memory;
  memory.rss = status.vm_rss;
  memory.rss_anon = status.rss_anon;
  memory.rss_file = status.rss_file;
  memory.rss_shmem = status.rss_shmem;
  memory.swap = status.vm_swap;
  memory.page_tables = status.vm_pte;
  memory.threads = status.threads;
  const std::uint64_t own = resident_ring_bytes(pid);
  for (const auto size : {&MemoryUse::rss, &MemoryUse::rss_shmem})
    if (memory.*size) *(memory.*size) -= std::min(*(memory.*size), own);
  return memory;
}

/// All threads of the process, also those that have ended. The clock is the kernel's own sum in ns; the times
/// in /proc/PID/stat have a grain of 10 ms. A thread that is on a CPU is accounted for at its next timer tick
/// or when it leaves the CPU (thread_group_cputime in kernel/sched/cputime.c): the sum may lag, seen right
/// after an exec, where it was 0.
std::optional<double> cpu_seconds_of(pid_t pid) {
  clockid_t clock{};
  timespec used{};
  if (::clock_getcpuclockid(pid, &clock) != 0 || ::clock_gettime(clock, &used) != 0) return std::nullopt;
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

}  // namespace

std::optional<std::uint64_t> parse_lazy_free(std::string_view smaps_rollup) {
  constexpr std::string_view name = "\nLazyFree:";
  const std::size_t at = smaps_rollup.find(name);
  if (at == std::string_view::npos) return std::nullopt;
  // The line has the shape of those of status, "LazyFree:    0 kB".
  const auto fields =
      parse_status(smaps_rollup.substr(at + 1, smaps_rollup.find('\n', at + 1) - at - 1)).fields;
  constexpr std::uint64_t kib = 1024;
  const std::string& value = fields.at("LazyFree");
  std::uint64_t count = 0;
  const auto [end, problem] = std::from_chars(value.data(), value.data() + value.size(), count);
  if (problem != std::errc{} || count > ~std::uint64_t{0} / kib) return std::nullopt;
  return count * kib;
}

Meter::Meter(Target target, TreeScope scope) : target_(std::move(target)), scope_(std::move(scope)) {}

void Meter::note(std::string text) {
  if (std::find(notes_.begin(), notes_.end(), text) == notes_.end()) notes_.push_back(std::move(text));
}

void Meter::add_details(pid_t pid, MemoryUse& memory) {
  if (const auto maps = read_proc_file(pid, "maps"))
    memory.mappings = static_cast<std::uint64_t>(std::count(maps->begin(), maps->end(), '\n'));
  else
    note("mappings are not counted: " + maps.error().happened);
  if (rollup_too_slow_) return;
  const auto begin = Clock::now();
  if (const auto rollup = read_proc_file(pid, "smaps_rollup"))
    memory.lazy_free = parse_lazy_free(*rollup);
  else
    note("LazyFree is not known: " + rollup.error().happened);
  // The process cannot map memory meanwhile: 4.5 s for 200 GB were reported.
  constexpr auto too_slow = std::chrono::milliseconds(500);
  const auto cost = Clock::now() - begin;
  if (cost < too_slow) return;
  rollup_too_slow_ = true;
  note(fmt::format(
      "LazyFree is not read any more: reading smaps_rollup held the process's mmap lock for {:.1f} s",
      std::chrono::duration<double>(cost).count()));
}

std::vector<ProcessEntry> Meter::members(const std::vector<ProcessEntry>& table) {
  std::vector<ProcessEntry> tree = descendants_of(target_.pid(), scope_.exclude, table);
  const auto inside = [&](const ProcessEntry& entry) {
    return entry.pid == target_.pid() ||
           std::any_of(tree.begin(), tree.end(),
                       [&](const ProcessEntry& member) { return member.pid == entry.pid; });
  };
  for (const ProcessEntry& entry : table) {
    const auto known = seen_.find(entry.pid);
    const bool was_inside = known != seen_.end() && known->second == entry.start_time;
    const bool adopted =
        !scope_.mark.empty() && entry.parent == scope_.exclude && has_environment(entry.pid, scope_.mark);
    if ((!was_inside && !adopted) || inside(entry)) continue;
    tree.push_back(entry);
    for (const ProcessEntry& below : descendants_of(entry.pid, scope_.exclude, table))
      if (!inside(below)) tree.push_back(below);
  }
  for (const ProcessEntry& entry : tree) seen_[entry.pid] = entry.start_time;
  return tree;
}

void Meter::note_orphans(const std::vector<ProcessEntry>& tree, const std::vector<ProcessEntry>& table) {
  const auto root = std::find_if(table.begin(), table.end(),
                                 [&](const ProcessEntry& entry) { return entry.pid == target_.pid(); });
  if (root == table.end() || !scope_.mark.empty()) return;  // what was started here is followed
  for (const ProcessEntry& orphan : likely_orphans(*root, tree, table))
    note(fmt::format(
        "process {} may come from the tree and is not counted: its parent has ended; measure it by itself, "
        "or start the program with -- CMD",
        orphan.pid));
}

void Meter::add_members(Detail detail, Measurement& at, HeldMemory& held) {
  const auto table = read_process_table();
  const auto tree = members(table);
  for (const ProcessEntry& entry : tree) {
    const auto child = read_status(entry.pid);
    if (!child || !child->vm_rss) continue;  // it ended meanwhile, or is a zombie: it holds no memory
    MemoryUse memory = memory_of(entry.pid, *child);
    if (detail == Detail::full) {
      add_details(entry.pid, memory);
      at.members.push_back({entry.pid, entry.start_time, memory.rss_anon});
      at.most_mappings = std::max(at.most_mappings, memory.mappings);
      held.add(entry.pid);
    }
    add(at.memory, memory);
    const auto cpu = cpu_seconds_of(entry.pid);
    if (at.cpu_seconds && cpu) *at.cpu_seconds += *cpu;
    ++at.processes;
  }
  if (detail == Detail::full) note_orphans(tree, table);
}

Result<Measurement> Meter::measure(Detail detail) {
  const auto begin = Clock::now();
  if (begin_ == Clock::time_point{}) begin_ = begin;
  if (auto same = target_.check(); !same) return tl::make_unexpected(same.error());
  const auto status = read_status(target_.pid());
  if (!status) return tl::make_unexpected(status.error());
  if (!status->vm_rss)  // an address space that is gone is not one of 0 bytes
    return fail(ErrorCode::process_ended, fmt::format("process {} is ending", target_.pid()),
                "start again with a new pid");

  // Not 't': a tracer's stops are short, and --gone traces.
  if (status->state == 'T')
    return fail(ErrorCode::process_stopped,
                fmt::format("process {} is stopped by job control, and cannot grow", target_.pid()),
                fmt::format("let it run: kill -CONT {}", target_.pid()));
  Measurement at;
  at.point = detail == Detail::full;
  at.seconds = std::chrono::duration<double>(begin - begin_).count();
  at.start_time = target_.identity().start_time;
  at.memory = memory_of(target_.pid(), *status);
  at.cpu_seconds = cpu_seconds_of(target_.pid());
  HeldMemory held;
  if (detail == Detail::full) {
    add_details(target_.pid(), at.memory);
    at.most_mappings = at.memory.mappings;
    held.add(target_.pid());
  }
  if (scope_.tree) add_members(detail, at, held);
  if (detail == Detail::full) {
    at.memory.held = held.bytes();
    for (const std::string& text : held.notes()) note(text);
  }
  // Whatever was read is of this process only if it still is this process.
  if (auto same = target_.check(); !same) return tl::make_unexpected(same.error());
  last_cost_ = Clock::now() - begin;
  return at;
}

}  // namespace whomap
