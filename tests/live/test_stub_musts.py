# SPDX-License-Identifier: Apache-2.0
"""What a stub must respect: frames saved inside it, filters that look where a call comes from, hooks that patch the same code."""

import os

import pytest

from stub_support import Trace
from support import code_of, is_running, run, status_field, wait_until

# A thread that maps populated memory; signals come while the kernel fills it, and find the thread right behind its `syscall`. After
# an order ("s") one handler that was called there stays in it: says where the thread will go on, and waits for a line.
SAVED = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/ucontext.h>
#include <unistd.h>
static volatile int wanted, inside_call;
static void on_alarm(int signal, siginfo_t *info, void *context) {
  (void)signal; (void)info;
  unsigned long rip = ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
  if (!wanted || !inside_call) return;
  const unsigned char *code = (const unsigned char *)rip;
  if (code[-2] != 0x0f || code[-1] != 0x05) return;
  wanted = 0;
  char text[64];
  int length = snprintf(text, sizeof text, "%lx\n", rip);
  write(1, text, length);
  char c;
  while (read(0, &c, 1) != 1 || c != 'g') {}
}
static void *orders(void *unused) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, NULL);
  char c;
  while (read(0, &c, 1) == 1 && c != 's') {}
  wanted = 1;
  return unused;
}
int main(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, orders, NULL);
  struct sigaction action = {.sa_sigaction = on_alarm, .sa_flags = SA_SIGINFO | SA_RESTART};
  sigaction(SIGALRM, &action, NULL);
  struct itimerval every = {{0, 1000}, {0, 1000}};
  setitimer(ITIMER_REAL, &every, NULL);
  puts("ready"); fflush(stdout);
  for (;;) {
    const size_t size = 16 << 20;
    inside_call = 1;
    char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    inside_call = 0;
    if (at == MAP_FAILED || at[size - 1] != 0) return 1;
    munmap(at, size);
  }
}
"""


def mapping_at(pid, address):
    with open(f"/proc/{pid}/maps") as maps:
        for line in maps:
            start, end = (int(part, 16) for part in line.split()[0].split("-"))
            if start <= address < end:
                return line.split(maxsplit=5)
    return None


@pytest.mark.parametrize("engine", ["gdb", "probe"])
def test_a_frame_saved_inside_a_stub_comes_back(targets, compile_c, tmp_path, engine):
    process = targets.start(compile_c(SAVED, name="saved"))
    before = code_of(process.pid)
    trace = Trace(process.pid, tmp_path / "t", engine=engine).wait_armed().wait_captures(1)
    process.stdin.write(b"s")
    process.stdin.flush()
    address = int(process.stdout.readline(), 16)
    place = mapping_at(process.pid, address)
    assert len(place) == 5 and place[1] == "r-xp", place  # of no file: the stub's
    trace.interrupt()
    trace.wait_all_gone()
    assert status_field(process.pid, "TracerPid") == "0"
    assert before == code_of(process.pid)
    assert mapping_at(process.pid, address) == place
    # Another trace uses that memory again while the frame is still there.
    assert run("trace", "-p", process.pid, "--engine", engine, "-d", 0.3, "-o", tmp_path / "u").returncode in (0, 1)
    assert mapping_at(process.pid, address) == place
    faults = int(open(f"/proc/{process.pid}/stat").read().rpartition(")")[2].split()[7])
    process.stdin.write(b"g")
    process.stdin.flush()
    # It goes on mapping: pages are filled again.
    wait_until(lambda: int(open(f"/proc/{process.pid}/stat").read().rpartition(")")[2].split()[7]) > faults + 1000,
               "the thread to go on")
    assert process.poll() is None and before == code_of(process.pid)


# FILTER: ip: a filter that loads the address of the call; dispatch: Syscall User Dispatch, letting everything through.
FILTERED = r"""
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>
#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif
static char selector;
int main(int count, char **arguments) {
  (void)count;
  if (!strcmp(arguments[1], "ip")) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, instruction_pointer)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {2, code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) return 1;
  } else if (prctl(PR_SET_SYSCALL_USER_DISPATCH, 1, 0, 0, &selector) != 0) {
    puts("unknown"); fflush(stdout);
    pause();
  }
  puts("ready"); fflush(stdout);
  for (;;) {
    munmap(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096);
    usleep(1000);
  }
}
"""


@pytest.mark.parametrize("kind, words", [("ip", "looks at the address of the call"), ("dispatch", "Syscall User Dispatch")])
def test_a_filter_that_looks_where_calls_come_from(targets, compile_c, tmp_path, kind, words):
    process = targets.start(compile_c(FILTERED, name="filtered"), kind, ready=False)
    if process.stdout.readline() == b"unknown\n":
        pytest.skip("this kernel has no Syscall User Dispatch")
    before = code_of(process.pid)
    refused = run("trace", "-p", process.pid, "--engine", "probe", "-d", 0.3, "-o", tmp_path / "t")
    assert refused.returncode == 5 and words in refused.stderr, refused.stderr
    assert len(refused.stderr.strip().splitlines()) <= 2
    traced = run("trace", "-p", process.pid, "-d", 0.5, "-o", tmp_path / "t")
    assert traced.returncode in (0, 1) and words in traced.stderr, traced.stderr
    assert is_running(process.pid) and before == code_of(process.pid)


# UCX's own hooks (libucm), put in when "i" comes: they overwrite the beginnings of mmap, munmap and others in libc.
HOOKED = r"""
#include <stdio.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <ucm/api/ucm.h>
#include <unistd.h>
static volatile unsigned long mapped, unmapped;
static void on_event(ucm_event_type_t type, ucm_event_t *event, void *argument) {
  (void)event; (void)argument;
  if (type & UCM_EVENT_VM_MAPPED) ++mapped;
  if (type & UCM_EVENT_VM_UNMAPPED) ++unmapped;
}
static int works(void) {
  const unsigned long m = mapped, u = unmapped;
  void *at = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED || *(volatile char *)at != 0 || munmap(at, 8192) != 0) return -1;
  return mapped > m && unmapped > u;
}
int main(void) {
  puts("ready"); fflush(stdout);
  char c;
  while (read(0, &c, 1) == 1) {
    if (c == 'i') {
      ucm_set_event_handler(UCM_EVENT_VM_MAPPED | UCM_EVENT_VM_UNMAPPED, 0, on_event, NULL);
      puts("installed");
    }
    if (c == 'w') printf("%d\n", works());
    fflush(stdout);
  }
}
"""


@pytest.mark.parametrize("engine", ["gdb", "probe"])
@pytest.mark.parametrize("first", [True, False], ids=["hooks-first", "trace-first"])
def test_hooks_of_ucx_stay_and_work(targets, compile_c, tmp_path, engine, first):
    process = targets.start(compile_c(HOOKED, "-Wl,--no-as-needed", "-lucm", "-lucs", name="hooked"), env={"UCX_LOG_LEVEL": "error"})

    def ask(order):
        process.stdin.write(order)
        process.stdin.flush()
        return process.stdout.readline().strip()

    assert ask(b"w") == b"0"
    if first:
        assert ask(b"i") == b"installed" and ask(b"w") == b"1"
    before = code_of(process.pid)
    trace = Trace(process.pid, tmp_path / "t", engine=engine).wait_armed()
    if not first:
        assert ask(b"i") == b"installed"
    for _ in range(20):
        assert ask(b"w") == b"1"
    trace.interrupt()
    trace.wait_all_gone()
    for _ in range(20):
        assert ask(b"w") == b"1"
    assert is_running(process.pid)
    if first:
        assert before == code_of(process.pid)
        assert len(trace.events()) >= 20
    assert os.path.getsize(tmp_path / "t") > 0
