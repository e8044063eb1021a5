// SPDX-License-Identifier: Apache-2.0
// How long does `whomap match` take for a large trace, how does that grow, and what does it need in memory?
//   match_rate [EVENTS=10000000] [LIVE=100000] [PERF_DATA]
// Prints one line for each size (a tenth, half and all of EVENTS): seconds, events a second, peak resident
// memory of a process that does nothing else. With PERF_DATA it times `perf script` on that in the same run
// and prints the ratios per event. For stacks as deep as those of the trace, 20 frames:
//   gcc -O2 -g -pthread tests/bench/targets/paced_calls.c -o paced_calls; sleep 60 | ./paced_calls 1 0 0 20 &
//   perf record -e syscalls:sys_exit_mmap --call-graph dwarf,8192 -p PID -o PERF_DATA
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "core/match/match.h"
#include "core/trace/writer.h"

namespace {

using namespace whomap;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

constexpr std::uint64_t page = 4096, base = 0x7f0000000000;
constexpr std::uint32_t stacks = 500;

Snapshot regions(std::uint64_t slots, std::uint64_t time_ns) {
  Snapshot snapshot = snapshot_from_text("1000-2000 rw-p 00000000 00:00 0 \nRss: 4 kB\n");
  snapshot.time_ns = time_ns;
  snapshot.totals = {0, 0, 0, 0, 0};
  if (slots == 0) return snapshot;
  Region region;
  region.vma.start = base;
  region.vma.end = base + slots * 4 * page;
  region.vma.readable = region.vma.writable = true;
  region.rss = region.vma.size();
  snapshot.regions.push_back(region);
  return snapshot;
}

/// Every call maps a free slot or unmaps a used one at random; at the end `live` slots are mapped.
bool write_trace(const std::string& path, std::uint64_t events, std::uint64_t live) {
  TraceHeader header;
  header.target = {1, 1, "/opt/app", "app"};
  auto writer = TraceWriter::create(path, true, header);
  if (!writer) return false;
  for (std::uint32_t id = 0; id < stacks; ++id) {
    Stack stack;
    stack.id = id;
    for (std::uint64_t depth = 0; depth < 20; ++depth) {
      Frame frame;
      frame.module = "/opt/app";
      frame.offset = id * 100 + depth;
      frame.function = "function_" + std::to_string(id) + "_" + std::to_string(depth);
      stack.frames.push_back(frame);
    }
    if (!writer->stack(stack)) return false;
  }
  if (!writer->snapshot(regions(0, 1))) return false;
  std::mt19937_64 random(1);
  std::vector<std::uint64_t> used, free;
  for (std::uint64_t slot = 0; slot < live + live / 10 + 1; ++slot) free.push_back(slot);
  for (std::uint64_t i = 0; i < events; ++i) {
    TraceEvent event;
    event.call.exit_ns = 1000 + i * 1000;
    event.call.enter_ns = event.call.exit_ns - 500 - random() % 400;
    event.call.tid = static_cast<pid_t>(1000 + random() % 64);
    event.stack = static_cast<std::uint32_t>(random() % stacks);
    const bool fills = used.size() < live && (events - i <= live - used.size() || random() % 4 != 0);
    if (used.empty() || (!free.empty() && (fills || random() % 2 == 0) && used.size() < live)) {
      const std::size_t which = random() % free.size();
      const std::uint64_t slot = free[which];
      free[which] = free.back();
      free.pop_back();
      used.push_back(slot);
      event.call.number = 9;
      event.call.arguments = {0, 3 * page, 3, 0x22, ~std::uint64_t{0}, 0};
      event.call.result = base + slot * 4 * page;
    } else {
      const std::size_t which = random() % used.size();
      const std::uint64_t slot = used[which];
      used[which] = used.back();
      used.pop_back();
      free.push_back(slot);
      event.call.number = 11;
      event.call.arguments = {base + slot * 4 * page, 3 * page};
    }
    if (!writer->event(event)) return false;
  }
  const std::uint64_t end = 2000 + events * 1000;
  if (!writer->snapshot(regions(live + live / 10 + 1, end))) return false;
  TraceEnd totals;
  totals.reason = "time";
  totals.end_ns = end;
  totals.events = events;
  return writer->end(totals).has_value();
}

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

struct Measured {
  double seconds = 0;
  double processor_seconds = 0;  ///< on a machine that does other things too, these say more
  double megabytes = 0;
};

/// In a child: peak memory is that of this match alone.
Measured measure(const std::string& path) {
  const auto begin = Clock::now();
  const pid_t child = ::fork();
  if (child == 0) {
    const auto answer = match_trace(path);
    ::_exit(answer && answer->growth.explained_bytes != 0 ? 0 : 1);
  }
  int status = 0;
  rusage usage{};
  if (::wait4(child, &status, 0, &usage) != child || status != 0) {
    std::fprintf(stderr, "match_rate: the match failed\n");
    std::exit(1);
  }
  return {seconds_since(begin), seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime),
          static_cast<double>(usage.ru_maxrss) / 1024};
}

struct PerEvent {
  double seconds = 0, processor_seconds = 0;
};

/// Writes a trace, matches it and says what that took.
PerEvent match_of(const std::string& path, std::uint64_t events, std::uint64_t live) {
  if (!write_trace(path, events, live)) {
    std::fprintf(stderr, "match_rate: %s could not be written\n", path.c_str());
    ::unlink(path.c_str());
    std::exit(1);
  }
  const Measured measured = measure(path);
  const auto count = static_cast<double>(events);
  std::printf(
      "match: %lu events, %lu live intervals: %.2f s (%.2f s of processor time), %.2f us an event, peak %.0f "
      "MB\n",
      events, live, measured.seconds, measured.processor_seconds, measured.seconds * 1e6 / count,
      measured.megabytes);
  std::fflush(stdout);
  return {measured.seconds / count, measured.processor_seconds / count};
}

double processor_seconds_of_children() {
  rusage usage{};
  ::getrusage(RUSAGE_CHILDREN, &usage);
  return seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
}

/// What perf script takes for an event.
PerEvent perf_script(const std::string& data) {
  const std::string command = "perf script -i '" + data + "' 2>/dev/null | grep -c ' syscalls:sys_'";
  const auto begin = Clock::now();
  const double before = processor_seconds_of_children();
  FILE* const output = ::popen(command.c_str(), "r");
  if (output == nullptr) return {};
  unsigned long events = 0;
  const bool read = std::fscanf(output, "%lu", &events) == 1;
  ::pclose(output);
  const double spent = processor_seconds_of_children() - before;
  if (!read || events == 0) return {};
  const double seconds = seconds_since(begin);
  std::printf("perf script: %lu events: %.2f s (%.2f s of processor time), %.2f us an event\n", events,
              seconds, spent, seconds * 1e6 / static_cast<double>(events));
  return {seconds / static_cast<double>(events), spent / static_cast<double>(events)};
}

}  // namespace

int main(int count, char** arguments) {
  const std::uint64_t most = count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 10'000'000;
  const std::uint64_t live = count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 100'000;
  const char* const temporary = std::getenv("TMPDIR");
  std::string path = std::string(temporary != nullptr ? temporary : "/tmp") + "/match_rate-XXXXXX";
  const int fd = ::mkstemp(path.data());
  if (fd < 0) {
    std::perror("match_rate");
    return 1;
  }
  ::close(fd);
  const PerEvent many = match_of(path, most / 10, live);
  match_of(path, most / 2, live);
  const PerEvent match = match_of(path, most, live);
  // What paced_calls does: hardly anything is mapped at a time.
  const PerEvent same = count > 3 ? match_of(path, most, 2) : PerEvent{};
  ::unlink(path.c_str());
  std::printf("ten times the events take %.1f times the processor time\n",
              10 * match.processor_seconds / many.processor_seconds);
  if (count > 3)
    if (const PerEvent perf = perf_script(arguments[3]); perf.seconds > 0) {
      std::printf(
          "for an event perf script takes %.0f times as long as match, and %.0f times the processor time\n",
          perf.seconds / match.seconds, perf.processor_seconds / match.processor_seconds);
      std::printf(
          "with two live intervals, about as in PERF_DATA: %.0f times as long, %.0f times the processor "
          "time\n",
          perf.seconds / same.seconds, perf.processor_seconds / same.processor_seconds);
    }
  return 0;
}
