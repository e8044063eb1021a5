// SPDX-License-Identifier: Apache-2.0
// How many frames a second does one thread unwind? items_per_second of `warm` is the figure that counts:
// every row is in the cache, as in a trace after its first stacks. `cold` opens the modules' CFI for every
// stack.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <string_view>

#include "core/unwind/unwinder.h"
#include "stopped_thread.h"

namespace {

volatile int sink;

/// Twenty functions on the stack, each with a frame and saved registers of its own.
template <int Depth>
[[gnu::noinline]] int descend(int a, int b, int c) {
  if constexpr (Depth == 0) {
    char byte = '\n';
    if (::write(STDOUT_FILENO, "blocked\n", 8) != 8) return 1;
    return static_cast<int>(::read(STDIN_FILENO, &byte, 1));
  } else {
    const int first = descend<Depth - 1>(a + b, c, a);
    const int second = first + a * b;
    sink = sink + second * c;
    return second;
  }
}

struct Input {
  whomap::test::BlockedChild child{{"/proc/self/exe", "--descend"}};
  whomap::test::Code code = whomap::test::code_of(child.pid());
  whomap::test::StoppedThread thread = whomap::test::look_at(child.pid());
};

const Input& input() {
  static const Input once;
  return once;
}

void warm(benchmark::State& state) {
  whomap::Unwinder unwinder(input().code.modules);
  std::size_t frames = 0;
  for (auto _ : state)
    frames += unwinder.unwind(input().thread.registers, input().thread.stack).frames.size();
  state.SetItemsProcessed(static_cast<std::int64_t>(frames));
  state.counters["frames"] = static_cast<double>(frames) / static_cast<double>(state.iterations());
}
BENCHMARK(warm);

void cold(benchmark::State& state) {
  std::size_t frames = 0;
  for (auto _ : state) {
    whomap::Unwinder unwinder(input().code.modules);
    frames += unwinder.unwind(input().thread.registers, input().thread.stack).frames.size();
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(frames));
}
BENCHMARK(cold);

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "--descend") return descend<20>(argc, argc + 1, argc + 2);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
