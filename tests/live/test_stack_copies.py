# SPDX-License-Identifier: Apache-2.0
"""How much of a stack is copied follows what the stacks need."""

import subprocess

from stub_support import Trace
from support import functions_of, report_of, run, wait_until

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


def is_cut(trace, event):
    stacks = {record["id"]: record for record in trace.records() if record.get("type") == "stack"}
    return "truncated" in stacks[event["stack"]]


def test_a_deep_stack_is_cut_once_and_whole_after_that(targets, compile_c, tmp_path):
    process = targets.start(compile_c(DEEP))
    trace = Trace(process.pid, tmp_path / "t").wait_armed()
    # More is asked for at the first; when that comes is a matter of how busy the machine is.
    wait_until(lambda: len(trace.events()) >= 20 and not any(is_cut(trace, event) for event in trace.events()[-10:]), "whole stacks")
    trace.interrupt()
    stacks = {record["stack"]: record for record in trace.records() if record.get("type") == "symbols"}
    events = trace.events()
    whole = [event for event in events if "truncated" not in stacks[event["stack"]]]
    cut = [event for event in events if "truncated" in stacks[event["stack"]]]
    assert cut and len(whole) >= 10
    assert events[:len(cut)] == cut  # not one after the first whole one
    assert all("copy ended" in stacks[event["stack"]]["truncated"] for event in cut)
    assert all(len(stacks[event["stack"]]["frames"]) > 60 for event in whole)
    assert run("match", tmp_path / "t").returncode in (0, 1)


GO = """
package main

import (
	"fmt"
	"time"
)

var kept [][]byte

//go:noinline
func leakOnTheHeap(size int) { kept = append(kept, make([]byte, size)) }

func main() {
	fmt.Println("ready")
	for {
		leakOnTheHeap(8 << 20)
		time.Sleep(20 * time.Millisecond)
	}
}
"""


def test_the_stack_that_go_switched_from(targets, tmp_path):
    """Go's allocator maps memory on the thread's own stack, its callers are on the goroutine's."""
    source = tmp_path / "heap.go"
    source.write_text(GO)
    program = tmp_path / "heap"
    subprocess.run(["go", "build", "-o", program, source], check=True, env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"})
    process = targets.start(program)
    report = report_of(run("trace", "-p", process.pid, "--engine", "gdb", "-d", 2, "-o", tmp_path / "t", "--format", "json"))
    chains = [stack for stack in report["stacks"] if "main.leakOnTheHeap" in functions_of(stack)]
    assert chains, [functions_of(stack) for stack in report["stacks"]]
    for stack in chains:
        functions = functions_of(stack)
        # Nothing is missing at the switch: what called systemstack follows it, and main is reached.
        switch = functions.index("runtime.systemstack")
        closure = functions[switch - 1]
        assert ".func" in closure and functions[switch + 1] == closure[:closure.rindex(".func")], functions
        assert functions.index("main.main") > functions.index("main.leakOnTheHeap") > switch
        assert not any(frame["guessed"] for frame in stack["frames"])
        assert stack["truncated"] is None
