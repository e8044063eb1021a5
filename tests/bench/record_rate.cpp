// SPDX-License-Identifier: Apache-2.0
// What a recorded call costs the thread that makes it, and how fast one core takes records out of the ring.
// `call` is the bare system call; `record/N` the same with N bytes of stack: the difference is the record.
// The last line is printed by the reader at 30,000 captures a second of 16 KiB, beside its share of one core.
#include <benchmark/benchmark.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "core/base/clock.h"
#include "core/capture/ring_reader.h"
#include "core/capture/stack_ranges.h"
#include "core/stub/ring_hand_over.h"

namespace {

using namespace whomap;

/// A ring and a function that makes getppid through a stub.
class Recorder {
 public:
  Recorder(std::uint64_t slots, std::uint64_t stack_bytes) {
    shape = RingShape::of({.slot_count = slots, .stack_bytes = stack_bytes, .range_capacity = 4096}).value();
    ring_ = map(shape.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE);
    control_ = map(control_area_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE);
    format_ring(ring(), shape);
    const RecordSettings settings = record_settings(reinterpret_cast<std::uint64_t>(ring_), shape,
                                                    {.tsc_usable = true, .thread_base_usable = true});
    std::memcpy(control_ + WHOMAP_SETTINGS, &settings, sizeof settings);
    auto* code = map(8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
    CodeBuffer buffer(reinterpret_cast<std::uint64_t>(code));
    if (!RingHandOver(reinterpret_cast<std::uint64_t>(control_)).emit(buffer, 1, SYS_getppid)) std::abort();
    constexpr std::array<std::uint8_t, 1> ret{0xC3};
    buffer.append(ret);
    std::memcpy(code, buffer.bytes().data(), buffer.bytes().size());
    ::mprotect(code, 8192, PROT_READ | PROT_EXEC);
    call_ = reinterpret_cast<void (*)()>(code);
    StackTableWriter(ring(), shape).publish(stack_ranges(read_maps(::getpid())->vmas, 0));
    std::atomic_ref(reinterpret_cast<ControlPage*>(control_)->armed).store(WHOMAP_ARMED);
  }

  std::span<std::byte> ring() { return {ring_, shape.bytes}; }
  RingReader reader() {
    return {ring(), shape, {.tsc_usable = true, .return_address_of = [](std::uint32_t) { return 0x1000; }}};
  }
  void call() const {
    long result = SYS_getppid;
    asm volatile("call *%1" : "+a"(result) : "r"(call_) : "rcx", "r11", "memory");
  }

  RingShape shape;

 private:
  static std::byte* map(std::size_t size, int protection, int flags) {
    void* at = ::mmap(nullptr, size, protection, flags, -1, 0);
    if (at == MAP_FAILED) std::abort();
    return static_cast<std::byte*>(at);
  }
  std::byte* ring_ = nullptr;
  std::byte* control_ = nullptr;
  void (*call_)() = nullptr;
};

/// Runs `body` with at least `bytes` of stack above it.
template <class Body>
[[gnu::noinline]] void below(std::size_t bytes, const Body& body) {
  auto* stack = static_cast<volatile char*>(__builtin_alloca(bytes + 1));
  for (std::size_t i = 0; i < bytes; i += 64) stack[i] = static_cast<char>(i);
  body();
  benchmark::DoNotOptimize(stack[0]);
}

void call(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(::syscall(SYS_getppid));
}
BENCHMARK(call);

/// The ring is emptied every 4096 calls, outside the measured time.
void record(benchmark::State& state) {
  Recorder recorder(8192, static_cast<std::uint64_t>(state.range(0)));
  RingReader reader = recorder.reader();
  int calls = 0;
  below(static_cast<std::size_t>(state.range(0)), [&] {
    for (auto _ : state) {
      recorder.call();
      if (++calls % 4096 != 0) continue;
      state.PauseTiming();
      reader.poll(monotonic_ns(), [](RingCapture&) {});
      state.ResumeTiming();
    }
  });
  reader.poll(monotonic_ns(), [](RingCapture&) {});
  state.counters["captures"] = static_cast<double>(reader.counts().captured);
  state.counters["dropped"] = static_cast<double>(reader.counts().dropped);
}
BENCHMARK(record)->Arg(64)->Arg(1024)->Arg(4096)->Arg(8192)->Arg(16384);

double thread_cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

void reader_at_rate(double per_second, double seconds) {
  Recorder recorder(4096, 16 * 1024);
  RingReader reader = recorder.reader();
  std::atomic<bool> over = false;
  std::uint64_t made = 0;
  const std::uint64_t start = monotonic_ns();
  std::thread producer([&] {
    StackTableWriter(recorder.ring(), recorder.shape).publish(stack_ranges(read_maps(::getpid())->vmas, 0));
    below(16 * 1024, [&] {
      for (;;) {
        const double elapsed = static_cast<double>(monotonic_ns() - start) / 1e9;
        if (elapsed > seconds) break;
        if (per_second > 0 && static_cast<double>(made) >= elapsed * per_second) continue;
        recorder.call();
        ++made;
      }
    });
    over = true;
  });
  const double cpu_before = thread_cpu_seconds();
  std::uint64_t bytes = 0;
  const auto take = [&](RingCapture& capture) { bytes += capture.capture.stack.bytes.size(); };
  while (!over) {
    reader.poll(monotonic_ns(), take);
    const timespec pause{0, static_cast<long>(reader.pause_ns())};
    ::nanosleep(&pause, nullptr);
  }
  producer.join();
  reader.poll(monotonic_ns(), take);
  const double cpu = thread_cpu_seconds() - cpu_before;
  const RingCounts counts = reader.counts();
  std::printf(
      "reader: %.0f calls/s made, %.0f captured/s, %llu dropped, %.0f MB/s of stack, %.0f %% of one core\n",
      static_cast<double>(made) / seconds, static_cast<double>(counts.captured) / seconds,
      static_cast<unsigned long long>(counts.dropped), static_cast<double>(bytes) / seconds / 1e6,
      100 * cpu / seconds);
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  reader_at_rate(30'000, 3);
  reader_at_rate(0, 3);
  return 0;
}
