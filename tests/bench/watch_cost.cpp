// SPDX-License-Identifier: Apache-2.0
// What watching costs on a process with 100,000 mappings, beside what pmap -X and cat of smaps cost in the
// same run. The figures are medians; other programs on the machine touch them all alike, so compare the
// ratios.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/regions/sampler.h"
#include "core/regions/tracker.h"

namespace {

constexpr std::size_t wanted_mappings = 100'000;
constexpr int rounds = 7;

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// A child with that many mappings: pages of one reservation with permissions by turns, every third touched.
/// vm.max_map_count bounds one process; above it the number that was reached is what is measured.
pid_t start_target(std::size_t mappings) {
  int ready[2];
  if (::pipe(ready) != 0) return -1;
  const pid_t child = ::fork();
  if (child != 0) {
    ::close(ready[1]);
    char byte = 0;
    const bool up = ::read(ready[0], &byte, 1) == 1;
    ::close(ready[0]);
    return up ? child : -1;
  }
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  auto* const memory = static_cast<char*>(::mmap(nullptr, mappings * page, PROT_READ | PROT_WRITE,
                                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  for (std::size_t i = 0; i < mappings; i += 3) memory[i * page] = 1;
  for (std::size_t i = 1; i < mappings; i += 2)
    if (::mprotect(memory + i * page, page, PROT_READ) != 0) break;
  if (::write(ready[1], "r", 1) != 1) ::_exit(1);
  for (;;) ::pause();
}

std::size_t read_max_map_count() {
  std::size_t count = 0;
  if (std::FILE* const file = std::fopen("/proc/sys/vm/max_map_count", "r")) {
    if (std::fscanf(file, "%zu", &count) != 1) count = 0;
    std::fclose(file);
  }
  return count;
}

bool set_max_map_count(std::size_t count) {
  std::FILE* const file = std::fopen("/proc/sys/vm/max_map_count", "w");
  if (file == nullptr) return false;
  const bool wrote = std::fprintf(file, "%zu", count) > 0;
  return std::fclose(file) == 0 && wrote;
}

double seconds_of_command(const std::string& command) {
  return seconds_of([&] {
    if (std::system(command.c_str()) != 0) std::fprintf(stderr, "watch_cost: failed: %s\n", command.c_str());
  });
}

}  // namespace

int main() {
  using namespace whomap;
  const std::size_t limit = read_max_map_count();
  const bool raised = limit < wanted_mappings + 1000 && set_max_map_count(2 * wanted_mappings);
  const pid_t child = start_target(wanted_mappings);
  if (raised) set_max_map_count(limit);
  if (child < 0) return 1;
  auto target = Target::open(child);
  int status = 1;
  if (target) {
    Sampler sampler(*target, std::chrono::duration<double>(1));
    RegionTracker tracker;
    std::vector<double> full, maps, cat, cat_maps, pmap, light, parse;
    for (int round = 0; round < rounds; ++round) {
      full.push_back(seconds_of([&] {
        auto reading = sampler.read_all();
        if (reading) tracker.add(std::move(reading->snapshot));
      }));
      cat.push_back(seconds_of_command(fmt::format("cat /proc/{}/smaps >/dev/null", child)));
      parse.push_back(seconds_of([&] { (void)take_full_snapshot(*target); }));
      maps.push_back(seconds_of([&] {
        if (auto snapshot = take_mapping_snapshot(*target)) tracker.add(std::move(*snapshot));
      }));
      cat_maps.push_back(seconds_of_command(fmt::format("cat /proc/{}/maps >/dev/null", child)));
      light.push_back(seconds_of([&] { (void)read_status(child); }));
      if (round < 3) pmap.push_back(seconds_of_command(fmt::format("pmap -X {} >/dev/null", child)));
    }
    const double one = median(full), by_cat = median(cat), by_pmap = median(pmap);
    std::printf(
        "watch_cost: %zu mappings%s\n", tracker.latest().regions.size(),
        tracker.latest().regions.size() < wanted_mappings ? " (vm.max_map_count allows no more)" : "");
    std::printf("  full sample, followed    %8.1f ms (reading alone %.1f ms)\n", one * 1e3,
                median(parse) * 1e3);
    std::printf("  cat smaps >/dev/null     %8.1f ms: a sample is %.2f of it (at most 2)\n", by_cat * 1e3,
                one / by_cat);
    std::printf("  pmap -X >/dev/null       %8.1f ms: a sample is %.3f of it (at most 0.2)\n", by_pmap * 1e3,
                one / by_pmap);
    std::printf("  sample of maps, followed %8.1f ms; cat maps %.1f ms; status %.3f ms\n", median(maps) * 1e3,
                median(cat_maps) * 1e3, median(light) * 1e3);
    std::printf("  smaps would be read every %.1f s\n",
                std::chrono::duration<double>(sampler.smaps_interval()).count());
    status = one <= 2 * by_cat && one <= by_pmap / 5 ? 0 : 1;
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  return status;
}
