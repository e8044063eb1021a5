# SPDX-License-Identifier: Apache-2.0
"""How much of a stack is copied follows what the stacks need."""

from stub_support import Trace
from support import run

DEEP = """
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
__attribute__((noinline)) static void descend(int left) {
  char room[1000];
  memset(room, left, sizeof room);
  if (left > 0)
    descend(left - 1);
  else
    mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  __asm__ volatile("" : : "r"(room) : "memory");
}
int main(void) {
  puts("ready"); fflush(stdout);
  const struct timespec pause = {0, 5000000};
  while (1) { descend(60); nanosleep(&pause, NULL); }
}
"""


def test_a_deep_stack_is_cut_once_and_whole_after_that(targets, compile_c, tmp_path):
    process = targets.start(compile_c(DEEP))
    trace = Trace(process.pid, tmp_path / "t").wait_armed().wait_captures(20)
    trace.interrupt()
    stacks = {record["stack"]: record for record in trace.records() if record.get("type") == "symbols"}
    events = trace.events()
    whole = [event for event in events if "truncated" not in stacks[event["stack"]]]
    cut = [event for event in events if "truncated" in stacks[event["stack"]]]
    assert 1 <= len(cut) <= 3 and len(whole) >= 10
    assert all("copy ended" in stacks[event["stack"]]["truncated"] for event in cut)
    assert all(len(stacks[event["stack"]]["frames"]) > 60 for event in whole)
    assert run("match", tmp_path / "t").returncode in (0, 1)
