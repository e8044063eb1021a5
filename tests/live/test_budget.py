# SPDX-License-Identifier: Apache-2.0
"""A trace that costs the process more than it may ends by itself, and says so."""

import time

from support import is_running, read_trace, run

# Maps as fast as it can in one thread; PAUSE microseconds between two rounds.
MAPS = r"""
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int count, char **arguments) {
  int pause = count > 1 ? atoi(arguments[1]) : 0;
  puts("ready"); fflush(stdout);
  for (;;) {
    void *at = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(at, 4096);
    if (pause) usleep(pause);
  }
}
"""


def traced(pid, path, *options):
    begin = time.monotonic()
    result = run("trace", "-p", pid, "--engine", "gdb", "-o", path, *options)
    assert result.returncode in (0, 1), result.stderr
    assert is_running(pid)
    return result, read_trace(path)[-1], time.monotonic() - begin


def test_a_costly_trace_ends_early_and_says_so(targets, compile_c, tmp_path):
    process = targets.start(compile_c(MAPS, name="maps"))
    result, end, _ = traced(process.pid, tmp_path / "t", "-d", 30)
    assert end["reason"] == "slowdown" and end["events"] > 0
    assert "--max-slowdown" in result.stdout and "early, at the given slowdown" in result.stdout, result.stdout


def test_the_user_may_pay_more(targets, compile_c, tmp_path):
    process = targets.start(compile_c(MAPS, name="maps"))
    _, end, seconds = traced(process.pid, tmp_path / "t", "-d", 2, "--max-slowdown", 100)
    assert end["reason"] == "time" and seconds > 2
    assert end["predicted_slowdown"] > 0.1


def test_a_cheap_trace_goes_on(targets, compile_c, tmp_path):
    process = targets.start(compile_c(MAPS, name="maps"), "50000")
    _, end, _ = traced(process.pid, tmp_path / "t", "-d", 2)
    assert end["reason"] == "time" and 0 < end["predicted_slowdown"] < 0.1
