// SPDX-License-Identifier: Apache-2.0
// compare_with_gdb PID [TID]: prints a thread's frames by whomap and where GDB's differ. For use by hand.
#include <cstdio>
#include <cstdlib>

#include "gdb_backtrace.h"

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: compare_with_gdb PID [TID]\n");
    return 2;
  }
  const pid_t pid = std::atoi(argv[1]);
  const auto result = whomap::test::compare_with_gdb(pid, argc > 2 ? std::atoi(argv[2]) : pid);
  std::printf("%s\ntruncated: %s%s\n", whomap::test::to_text(result.ours).c_str(), result.truncated.c_str(),
              result.guessed ? " (guessed frames)" : "");
  for (const auto& difference : result.differences) std::printf("DIFFERENT %s\n", difference.c_str());
  return result.differences.empty() ? 0 : 1;
}
