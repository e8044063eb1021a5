# SPDX-License-Identifier: Apache-2.0
"""What a program does for itself works on while it is traced: its own traps, signals, children, threads."""

import subprocess

import pytest

from support import WHOMAP, code_of, differences, is_running, read_trace, run, wait_until

# Each body runs `count` rounds of something delicate and maps memory in each; it prints what it counted.
PROGRAM = """
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
extern char **environ;
static volatile int seen;
static void *map(void) { return mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }
/* SIGTRAP is blocked inside its own handler, and a breakpoint that is hit then makes the kernel reset the
   handler (force_sig in kernel/signal.c): ordinary breakpoints cannot do better, so this one maps nothing. */
static void handler(int signal) { seen++; if (signal != SIGTRAP) map(); }
static void *churn(void *unused) { free(malloc(200000)); map(); return unused; }
static void catch(int signal) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_handler = handler; sigaction(signal, &a, NULL); }
static int child(pid_t pid) { int status; waitpid(pid, &status, 0); return WIFEXITED(status) && WEXITSTATUS(status) == 7; }
static int one(const char *what) {
  map();
  if (!strcmp(what, "int3")) { int before = seen; __asm__ volatile("int3"); return seen == before + 1; }
  if (!strcmp(what, "signal")) { int before = seen; raise(SIGUSR1); return seen == before + 1; }
  if (!strcmp(what, "interrupt")) { int before = seen; kill(getpid(), SIGINT); return seen == before + 1; }
  if (!strcmp(what, "segv")) { int before = seen; raise(SIGSEGV); return seen == before + 1; }
  if (!strcmp(what, "fork")) { pid_t p = fork(); if (!p) { map(); free(malloc(300000)); _exit(7); } return child(p); }
  if (!strcmp(what, "vfork")) { pid_t p = vfork(); if (!p) { map(); _exit(7); } return child(p); }
  if (!strcmp(what, "spawn")) { pid_t p; char *a[] = {"sh", "-c", "exit 7", NULL};
    return !posix_spawnp(&p, "sh", NULL, NULL, a, environ) && child(p); }
  if (!strcmp(what, "system")) { int s = system("exit 7"); return WIFEXITED(s) && WEXITSTATUS(s) == 7; }
  if (!strcmp(what, "popen")) { char line[9] = ""; FILE *f = popen("echo hi", "r"); return f && fgets(line, 9, f) && !pclose(f) && !strcmp(line, "hi\\n"); }
  if (!strcmp(what, "threads")) { pthread_t t; return !pthread_create(&t, NULL, churn, NULL) && !pthread_join(t, NULL); }
  if (!strcmp(what, "detached")) { pthread_t t; return !pthread_create(&t, NULL, churn, NULL) && !pthread_detach(t); }
  if (!strcmp(what, "failing")) { errno = 0; return mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == EINVAL; }
  return 0;
}
int main(int count, char **arguments) {
  int good = 0, rounds = 0;
  char stop = 0;
  struct pollfd waiting = {0, POLLIN, 0};
  catch(SIGTRAP); catch(SIGUSR1); catch(SIGINT); catch(SIGSEGV);
  puts("ready"); fflush(stdout);
  while (!poll(&waiting, 1, 5)) { rounds++; good += one(arguments[1]); }
  printf("%d %d\\n", good, rounds); fflush(stdout);
  read(0, &stop, 1);
  return 0;
}
"""

KINDS = ["int3", "signal", "interrupt", "segv", "fork", "vfork", "spawn", "system", "popen", "threads", "detached", "failing"]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unharmed")
    (folder / "p.c").write_text(PROGRAM)
    subprocess.run(["gcc", "-O2", "-g", "-pthread", "-w", folder / "p.c", "-o", folder / "p"], check=True)
    return folder / "p"


@pytest.mark.parametrize("kind", KINDS)
def test_goes_on_as_without_a_tracer(targets, program, tmp_path, kind):
    process = targets.start(program, kind)
    before = code_of(process.pid)
    result = run("trace", "-p", process.pid, "-d", 1, "-o", tmp_path / "t")
    assert result.returncode in (0, 1), result.stderr
    assert is_running(process.pid)
    assert differences(before, code_of(process.pid)) == []
    process.stdin.write(b"x")
    process.stdin.flush()
    good, rounds = map(int, process.stdout.readline().split())
    assert good == rounds > 10
    events = [record for record in read_trace(tmp_path / "t") if record.get("type") == "event"]
    assert len(events) > 5
    if kind == "failing":
        failed = [event for event in events if int(event["result"], 16) == 2**64 - 22]  # -EINVAL
        assert failed and all(event["call"] == "mmap" for event in failed)


def test_threads_at_full_speed_are_paired_right(targets, compile_c, tmp_path):
    """8 threads make calls of different kinds through syscall(); each call's result is checked against its
    own arguments: a fixed address per thread and call number, so that a swapped result shows."""
    process = targets.start(compile_c("""
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
static void *work(void *argument) {
  unsigned long own = 0x100000000000ul + (unsigned long)argument * 0x1000000000ul;
  for (unsigned long n = 0;; n = (n + 1) % 1000) {
    unsigned long place = own + n * 0x100000;
    syscall(SYS_mmap, place, 4096 * (1 + n % 7), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0L);
    syscall(SYS_getppid);
    syscall(SYS_munmap, place, 4096 * (1 + n % 7));
  }
}
int main(void) {
  pthread_t thread;
  for (long i = 0; i < 8; i++) pthread_create(&thread, NULL, work, (void *)i);
  puts("ready"); fflush(stdout);
  pause();
}
"""))
    result = run("trace", "-p", process.pid, "-d", 3, "-o", tmp_path / "t", "--format", "json")
    assert result.returncode in (0, 1), result.stderr
    events = [record for record in read_trace(tmp_path / "t") if record.get("type") == "event"]
    fixed = [event for event in events if event["call"] == "mmap" and int(event["args"][3], 16) & 0x10]
    assert len(fixed) > 500
    assert all(event["result"] == event["args"][0] for event in fixed)
    owners = {}
    for event in fixed:
        owners.setdefault(event["tid"], set()).add(int(event["args"][0], 16) >> 36)
    assert len(owners) == 8 and all(len(own) == 1 for own in owners.values())
    unmaps = [event for event in events if event["call"] == "munmap"]
    assert unmaps and all(int(event["result"], 16) == 0 for event in unmaps)
    assert is_running(process.pid)
