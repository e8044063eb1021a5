# SPDX-License-Identifier: Apache-2.0
"""Processes that live in the target's memory, or were forked from it with stubs in their code."""

import subprocess

import pytest

from stub_support import Trace
from support import PATIENCE, code_of, differences, is_running, run, wait_until

SHARER = r"""
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
static int loop(void *unused) {
  (void)unused;
  for (;;) {
    munmap(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096);
    usleep(500);
  }
}
int main(void) {
  char *stack = malloc(65536);
  int other = clone(loop, stack + 65536, CLONE_VM | CLONE_FS | CLONE_FILES | SIGCHLD, NULL);
  printf("ready\n%d\n", other); fflush(stdout);
  int status;
  waitpid(other, &status, 0);
  return 1;
}
"""


@pytest.mark.parametrize("options", [(), ("--engine", "gdb"), ("--engine", "gdb", "--no-stubs"), ("--engine", "probe")])
def test_a_process_that_shares_its_memory_is_left_alone(targets, compile_c, tmp_path, options):
    process = targets.start(compile_c(SHARER, name="sharer"))
    other = int(process.stdout.readline())
    try:
        for pid, relative in ((process.pid, other), (other, process.pid)):
            refused = run("trace", "-p", pid, "-d", 1, "-o", tmp_path / "t", *options)
            assert refused.returncode == 5 and f"process {relative}" in refused.stderr, refused.stderr
            assert run("doctor", "-p", pid).returncode == 5
        assert is_running(process.pid) and is_running(other)
    finally:
        subprocess.run(["kill", "-9", str(other)], check=False)


# "f" forks a child that says its pid and lives on; "c": a chain of children, each of which forks the next and ends, at most 40 at
# once ("." on the second line ends it).
FORKS = r"""
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
static void maps(void) { munmap(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096); }
int main(void) {
  signal(SIGCHLD, SIG_IGN);
  puts("ready"); fflush(stdout);
  char order;
  while (read(0, &order, 1) == 1) {
    if (order != 'f' && order != 'c') continue;
    int ends[2];
    pipe(ends);
    pid_t child = fork();
    if (child == 0) {
      if (order == 'c') {
        for (int left = 4000; left > 0; --left) {
          maps();
          usleep(1000);
          pid_t next = fork();
          if (next != 0) _exit(0);
        }
        _exit(0);
      }
      for (;;) { maps(); usleep(1000); }
    }
    printf("%d\n", child); fflush(stdout);
  }
}
"""


def forked(process, order):
    process.stdin.write(order)
    process.stdin.flush()
    return int(process.stdout.readline())


def test_a_child_that_somebody_else_traces_is_named_and_repaired_later(targets, compile_c, tmp_path):
    process = targets.start(compile_c(FORKS, name="forks"))
    before = code_of(process.pid)
    trace = Trace(process.pid, tmp_path / "t", engine="probe").wait_armed()
    child = forked(process, b"f")
    gdb = subprocess.Popen(["gdb", "-nx", "-q", "-p", str(child), "-ex", "echo attached\\n"], stdin=subprocess.PIPE,
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert any("attached" in line and "whomap" not in line for line in iter(gdb.stdout.readline, ""))
        said = trace.interrupt()
        assert f"repair -p {child}" in said, said
        assert differences(before, code_of(process.pid)) == []
        assert differences(before, code_of(child))
        # It cannot be repaired yet, neither by its own number nor by its parent's.
        assert run("repair", "-p", process.pid).returncode != 0
        assert run("repair", "-p", child).returncode == 3
        # Another trace does not forget it.
        Trace(process.pid, tmp_path / "u", engine="probe").wait_armed().interrupt()
        gdb.communicate("detach\nquit\n", timeout=PATIENCE)
        wait_until(lambda: is_running(child), "the child to run")
        refused = run("trace", "-p", child, "-d", 0.3, "-o", tmp_path / "v")
        assert refused.returncode == 3 and f"whomap repair -p {child}" in refused.stderr, refused.stderr
        assert run("repair", "-p", child).returncode == 0
        assert differences(before, code_of(child)) == []
        assert is_running(child) and is_running(process.pid)
    finally:
        gdb.kill()
        subprocess.run(["kill", "-9", str(child)], check=False)


def members(program):
    found = subprocess.run(["pgrep", "-f", str(program)], capture_output=True, text=True, check=False).stdout.split()
    return [int(pid) for pid in found]


@pytest.mark.parametrize("engine", ["probe", "gdb"])
def test_a_chain_of_children_does_not_outrun_the_removal(targets, compile_c, tmp_path, engine):
    program = compile_c(FORKS, name="forks")
    process = targets.start(program)
    before = code_of(process.pid)
    trace = Trace(process.pid, tmp_path / "t", engine=engine).wait_armed()
    forked(process, b"c")
    trace.interrupt()
    trace.wait_all_gone()
    # Whoever is forked now has clean code, or nobody would have noticed its parent.
    for _ in range(5):
        for pid in members(program):
            try:
                changed = differences(before, code_of(pid))
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue  # it has ended
            assert changed == [], (pid, changed)
    assert is_running(process.pid)
