// SPDX-License-Identifier: Apache-2.0
// compare_with_gdb PID [TID [CALL]]: prints a thread's frames by whomap and where GDB's differ, now or at its
// next return from system call number CALL. For use by hand.
#include <signal.h>

#include <cstdio>
#include <cstdlib>

#include "gdb_backtrace.h"

int main(int argc, char** argv) {
  using namespace whomap::test;
  if (argc < 2) {
    std::fprintf(stderr, "usage: compare_with_gdb PID [TID [CALL]]\n");
    return 2;
  }
  const pid_t pid = std::atoi(argv[1]);
  const pid_t tid = argc > 2 ? std::atoi(argv[2]) : pid;
  const Comparison result =
      compare_with_gdb(pid, tid, argc > 3 ? look_at_return(tid, std::atoi(argv[3])) : look_at(tid));
  if (argc > 3) ::kill(pid, SIGCONT);
  std::printf("%s\ntruncated: %s%s\n", to_text(result.ours).c_str(), result.truncated.c_str(),
              result.guessed ? " (guessed frames)" : "");
  for (const auto& difference : result.differences) std::printf("DIFFERENT %s\n", difference.c_str());
  return result.differences.empty() ? 0 : 1;
}
