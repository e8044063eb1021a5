// SPDX-License-Identifier: Apache-2.0
// How long a plan takes on a process that has much code mapped: libLLVM, loaded in front of sleep(1).
#include <glob.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/plan/make_plan.h"
#include "core/process/vma.h"

namespace {

std::string find_llvm() {
  glob_t found{};
  std::string path;
  for (const char* pattern : {"/usr/lib/x86_64-linux-gnu/libLLVM*.so*", "/usr/lib/llvm-*/lib/libLLVM*.so*"})
    if (path.empty() && ::glob(pattern, 0, nullptr, &found) == 0) path = found.gl_pathv[0];
  ::globfree(&found);
  return path;
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

int main() {
  using namespace whomap;
  const std::string library = find_llvm();
  if (library.empty()) {
    std::printf("plan_rate: left out, no libLLVM is installed (apt-get install libllvm14)\n");
    return 0;
  }
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("LD_PRELOAD", library.c_str(), 1);
    ::execl("/bin/sleep", "sleep", "1000", static_cast<char*>(nullptr));
    ::_exit(127);
  }
  std::uint64_t text = 0;
  for (int wait = 0; wait < 1000 && text < (20U << 20U); ++wait) {
    ::usleep(10'000);
    text = 0;
    if (const auto maps = read_maps(child))
      for (const Vma& vma : maps->vmas)
        if (vma.executable) text += vma.size();
  }
  const auto target = Target::open(child);
  std::vector<double> times;
  std::size_t sites = 0;
  for (int round = 0; target && round < 5; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    ModuleMap modules;
    if (const auto maps = read_maps(child)) modules.update(*target, maps->vmas);
    if (const auto plan = make_plan(*target, modules, {})) sites = plan->sites.size();
    times.push_back(seconds_since(begin));
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  std::sort(times.begin(), times.end());
  const double megabytes = static_cast<double>(text) / 1e6;
  std::printf(
      "plan_rate: %.0f MB of text mapped (%s), %zu sites; whole plan %.3f s (median of %zu), %.0f MB/s\n",
      megabytes, library.c_str(), sites, times[times.size() / 2], times.size(),
      megabytes / times[times.size() / 2]);
  return sites == 0 ? 1 : 0;
}
