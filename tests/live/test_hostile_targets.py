# SPDX-License-Identifier: Apache-2.0
"""Programs and people that pull the rug: code that moves, children at the wrong moment, second tracers, frozen
debuggers, damaged plans. The target must live, with its memory as its owner left it."""

import json
import os
import re
import signal
import subprocess

import pytest

from support import (EXAMPLES, WHOMAP, code_of, differences, gdb_of, is_running, read_trace, report_of, run, status_field,
                     wait_until)

# argv[1] "patch": writes a jump over libc's munmap, as hook libraries do; "data": unmaps a code page that has a
# site and maps data there, argv[2] being its byte. On a line at standard input; then it checks itself for ever.
MOVING_CODE = r"""
#define _GNU_SOURCE
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
static int own_munmap(void *a, size_t n) {
  long r; __asm__ volatile("syscall" : "=a"(r) : "a"(11), "D"(a), "S"(n) : "rcx", "r11", "memory"); return (int)r; }
static void traffic(void) { void *p = mmap(0, 65536, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); *(char *)p = 1; munmap(p, 65536); }
static void patch(void) {
  unsigned char jump[12] = {0x48, 0xb8}; void *to = (void *)own_munmap; char *page = (char *)((long)munmap & ~4095l);
  memcpy(jump + 2, &to, 8); jump[10] = 0xff; jump[11] = 0xe0;
  mprotect(page, 8192, 7); memcpy((void *)munmap, jump, 12); mprotect(page, 8192, 5); }
int main(int count, char **arguments) {
  static const unsigned char site[] = {0xb8, 9, 0, 0, 0, 0x49, 0x89, 0xca, 0x0f, 0x05, 0x48, 0x89, 0xc0, 0xc3};
  int data = !strcmp(arguments[1], "data"), byte = count > 2 ? atoi(arguments[2]) : 0, moved = 0;
  unsigned char *code = mmap(0, 4096, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  struct pollfd waiting = {0, POLLIN, 0};
  memset(code, 0x90, 4096); memcpy(code + 256, site, sizeof site); mprotect(code, 4096, 5);
  puts("ready"); fflush(stdout);
  for (;;) {
    traffic();
    if (!moved && poll(&waiting, 1, 1) == 1) {
      if (data) { own_munmap(code, 4096); mmap(code, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0); memset(code, byte, 4096); }
      else patch();
      moved = 1; puts("moved"); fflush(stdout);
    } else if (moved) poll(0, 0, 1);
    if (moved && data) for (int i = 0; i < 4096; i++) if (code[i] != byte) { printf("corrupted at %d\n", i); fflush(stdout); _exit(66); }
  }
}
"""


@pytest.mark.parametrize("how", [("patch",), ("data", "0"), ("data", str(0xCC))], ids=["patched", "zeros", "int3s"])
def test_memory_that_is_anothers_by_now_is_left_alone(targets, compile_c, tmp_path, how):
    process = targets.start(compile_c(MOVING_CODE), *how)
    trace = tmp_path / "t"
    tracer = subprocess.Popen([WHOMAP, "trace", "-p", str(process.pid), "-d", "60", "-o", trace],
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: trace.exists() and '"type":"event"' in trace.read_text(), "a captured call")
    process.stdin.write(b"x")
    process.stdin.flush()
    assert process.stdout.readline() == b"moved\n"
    tracer.send_signal(signal.SIGINT)
    err = tracer.communicate(timeout=60)[1]
    assert re.search("whomap: the (memory|code) at 0x.*left alone", err)
    assert process.poll() is None
    wait_until(lambda: is_running(process.pid), "the target to run on")
    # It goes on making calls through what it has put there.
    calls = int(open(f"/proc/{process.pid}/stat").read().rpartition(")")[2].split()[11])
    wait_until(lambda: int(open(f"/proc/{process.pid}/stat").read().rpartition(")")[2].split()[11]) > calls + 2,
               "the target to use processor time")
    assert process.poll() is None


FORKING = r"""
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
  int children = 0, bad = 0;
  struct pollfd waiting = {0, POLLIN, 0};
  puts("ready"); fflush(stdout);
  while (!poll(&waiting, 1, 0)) {
    int status; pid_t child = fork();
    if (!child) { for (int i = 0; i < 5; i++) { void *p = mmap(0, 65536, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); munmap(p, 65536); poll(0, 0, 2); } _exit(7); }
    waitpid(child, &status, 0); children++; bad += !WIFEXITED(status) || WEXITSTATUS(status) != 7;
  }
  printf("%d %d\n", children, bad); fflush(stdout);
  return 0;
}
"""


def test_children_forked_while_letting_go_live(targets, compile_c, tmp_path):
    process = targets.start(compile_c(FORKING))
    for round_ in range(6):
        result = run("trace", "-p", process.pid, "-d", 0.5, "-o", tmp_path / str(round_))
        assert result.returncode in (0, 1), result.stderr
    process.stdin.write(b"x")
    process.stdin.flush()
    children, bad = map(int, process.stdout.readline().split())
    assert children > 20 and bad == 0


@pytest.mark.parametrize("engines", [("probe", "probe"), ("gdb", "gdb"), ("probe", "gdb")])
def test_the_second_of_two_tracers_steps_back(targets, tmp_path, engines):
    process = targets.start(EXAMPLES / "raw_mmap", 100)
    before = code_of(process.pid)
    both = [subprocess.Popen([WHOMAP, "trace", "-p", str(process.pid), "--engine", engine, "-d", "10", "--format", "json",
                              "-o", tmp_path / name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for engine, name in zip(engines, ("a", "b"))]
    results = [(tracer.communicate(timeout=90), tracer.returncode) for tracer in both]
    winners = [out for (out, err), status in results if status == 0]
    losers = [err for (out, err), status in results if status != 0]
    assert len(winners) == 1 and json.loads(winners[0])["stacks"][0]["share"] >= 0.9
    assert [status for _, status in results if status] == [3], losers
    assert "traced" in losers[0] or "breakpoint is already" in losers[0]
    assert is_running(process.pid) and differences(before, code_of(process.pid)) == []


def test_a_gdb_that_was_frozen_is_waited_for(targets, tmp_path):
    process = targets.start(EXAMPLES / "raw_mmap", 300)
    before, trace = code_of(process.pid), tmp_path / "t"
    tracer = subprocess.Popen([WHOMAP, "trace", "-p", str(process.pid), "--engine", "gdb", "-d", "2", "-q", "-o", trace],
                              stdout=subprocess.DEVNULL)
    wait_until(lambda: trace.exists() and '"type":"event"' in trace.read_text(), "a captured call")
    os.kill(gdb_of(process.pid), signal.SIGSTOP)
    assert tracer.wait(120) in (0, 1)  # it continues the GDB after its patience
    wait_until(lambda: is_running(process.pid), "the target to run on")
    assert differences(before, code_of(process.pid)) == []


def test_ctrl_c_on_a_script_ends_the_trace_and_nothing_else(targets, tmp_path):
    process = targets.start(EXAMPLES / "raw_mmap", 100)
    before = code_of(process.pid)
    script, trace = tmp_path / "x.gdb", tmp_path / "x.trace"
    assert run("script", "-p", process.pid, "-o", script, "-d", 60, "--trace", trace).returncode == 0
    gdb = subprocess.Popen(["gdb", "-nx", "-batch", "-x", script], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, start_new_session=True)
    wait_until(lambda: trace.exists() and '"type":"event"' in trace.read_text(), "a captured call")
    os.killpg(gdb.pid, signal.SIGINT)  # what a terminal does
    gdb.wait(60)
    assert is_running(process.pid) and differences(before, code_of(process.pid)) == []
    assert read_trace(trace)[-1]["reason"] == "interrupted"


def test_sigint_to_the_gdb_of_a_trace_harms_nobody(targets, tmp_path):
    process = targets.start(EXAMPLES / "raw_mmap", 100)
    before = code_of(process.pid)
    tracer = subprocess.Popen([WHOMAP, "trace", "-p", str(process.pid), "--engine", "gdb", "-d", "3", "-q", "-o", tmp_path / "t"],
                              stdout=subprocess.DEVNULL)
    wait_until(lambda: differences(before, code_of(process.pid)), "breakpoints")
    os.kill(gdb_of(process.pid), signal.SIGINT)
    assert tracer.wait(60) == 0
    assert is_running(process.pid) and differences(before, code_of(process.pid)) == []


def saved_plan(process, tmp_path):
    return json.loads(run("plan", "-p", process.pid, "--format", "json").stdout), tmp_path / "plan.json"


@pytest.mark.parametrize("field, shift", [("return", -4), ("return", 1), ("return", 0x20000), ("syscall", -2)])
def test_a_plan_with_shifted_addresses_is_refused(targets, tmp_path, field, shift):
    process = targets.start(EXAMPLES / "raw_mmap", 100)
    before = code_of(process.pid)
    plan, path = saved_plan(process, tmp_path)
    site = next(site for site in plan["sites"] if site["watch"] == "return-breakpoint" and site["numbers"] == [9])
    for name in (f"{field}_address", f"{field}_offset"):
        site[name] = hex(int(site[name], 16) + shift)
    path.write_text(json.dumps(plan))
    result = run("trace", "-p", process.pid, "-d", 1, "--plan", path, cwd=tmp_path)
    assert result.returncode == 6, result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert is_running(process.pid) and differences(before, code_of(process.pid)) == []


@pytest.mark.parametrize("change", [{"number": 11, "numbers": [11]}, {"numbers": [9, 11]},
                                    {"kind": "variable", "number": None, "any_number": True}], ids=["other", "more", "variable"])
def test_a_plan_with_another_number_is_refused(targets, tmp_path, change):
    process = targets.start(EXAMPLES / "raw_mmap", 100)
    before = code_of(process.pid)
    plan, path = saved_plan(process, tmp_path)
    next(site for site in plan["sites"] if site["watch"] == "return-breakpoint" and site["numbers"] == [9]).update(change)
    path.write_text(json.dumps(plan))
    result = run("trace", "-p", process.pid, "-d", 1, "--plan", path, cwd=tmp_path)
    assert result.returncode == 6, result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert is_running(process.pid) and differences(before, code_of(process.pid)) == []


def test_the_room_for_a_stub_is_looked_for_afresh(targets, tmp_path):
    """A room that begins three bytes early, in the middle of another instruction, with the bytes that are there."""
    process = targets.start(EXAMPLES / "raw_mmap", 100)
    before = code_of(process.pid)
    plan, path = saved_plan(process, tmp_path)
    changed = 0
    for site in plan["sites"]:
        stub = site["stub"]
        if not stub["possible"]:
            continue
        start, end = int(stub["address"], 16) - 3, int(site["syscall_address"], 16)
        with open(f"/proc/{process.pid}/mem", "rb", buffering=0) as memory:
            memory.seek(start)
            stub.update(address=hex(start), length=5, code=memory.read(end - start).hex())
        changed += 1
    assert changed
    path.write_text(json.dumps(plan))
    result = run("trace", "-p", process.pid, "-d", 1, "--plan", path, "--format", "json", "-o", tmp_path / "t")
    assert result.returncode == 0, result.stderr
    assert report_of(result)["stacks"][0]["share"] >= 0.9
    assert is_running(process.pid) and differences(before, code_of(process.pid)) == []


def test_a_plan_with_a_site_twice_is_refused(targets, tmp_path):
    process = targets.start(EXAMPLES / "raw_mmap", 100)
    plan, path = saved_plan(process, tmp_path)
    twice = dict(next(site for site in plan["sites"] if site["stub"]["possible"]), id=len(plan["sites"]))
    path.write_text(json.dumps(dict(plan, sites=[*plan["sites"], twice])))
    result = run("trace", "-p", process.pid, "-d", 1, "--plan", path, cwd=tmp_path)
    assert result.returncode == 6 and "twice" in result.stderr
    assert is_running(process.pid)


def test_a_deeply_nested_plan_is_refused(targets, tmp_path):
    process = targets.start(EXAMPLES / "raw_mmap", 100)
    path = tmp_path / "deep.json"
    path.write_text('{"format":"whomap-plan","version":' + "[" * 200_000 + "]" * 200_000 + "}")
    result = run("trace", "-p", process.pid, "--plan", path, cwd=tmp_path)
    assert result.returncode == 6 and len(result.stderr.splitlines()) == 1


RESERVED = r"""
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
int main(int count, char **arguments) {
  size_t step = 1 << 20, at = 0, all = 256 * step;
  char *base = mmap(0, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  puts("ready"); fflush(stdout);
  for (; at < all; at += step, poll(0, 0, 50)) {
    if (arguments[1][0] == 'f') mmap(base + at, step, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    else mprotect(base + at, step, PROT_READ | PROT_WRITE);
    memset(base + at, 1, step);
  }
  return 0;
}
"""


def test_a_reservation_opened_by_map_fixed_is_the_opening_codes_growth(targets, compile_c, tmp_path):
    process = targets.start(compile_c(RESERVED), "fixed")
    report = report_of(run("trace", "-p", process.pid, "-d", 3, "-o", tmp_path / "t", "--format", "json"))
    assert report["verdict"]["class"] == "leak" and "main" in report["verdict"]["text"]
    assert report["stacks"][0]["share"] >= 0.95 and report["growth"]["mapped_bytes"] > 20 << 20


def test_a_reservation_opened_by_mprotect_is_said_to_be_one(targets, compile_c, tmp_path):
    process = targets.start(compile_c(RESERVED), "protect")
    result = run("trace", "-p", process.pid, "-d", 3, "-o", tmp_path / "t", "--format", "json")
    assert result.returncode == 0
    report = report_of(result)
    assert report["verdict"]["class"] == "reservation" and "no mmap was made" in report["verdict"]["text"]
    growth = report["growth"]
    assert growth["explained_bytes"] + growth["unexplained_bytes"] == growth["mapped_bytes"] > 20 << 20


TWO_PLACES = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
static long own(long number, long a, long b, long c, long d) {  // the number is only known at run time
  register long r10 __asm__("r10") = d, r8 __asm__("r8") = -1, r9 __asm__("r9") = 0, result;
  __asm__ volatile("mov %1, %%rax; .byte 0x48, 0x8d, 0xb6, 0, 0, 0, 0; syscall"  // lea 0(%rsi),%rsi of 7 bytes: room
                   : "=&a"(result) : "r"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
  return result;
}
static void *work(void *unused) {
  for (;;) {
    char *p = (char *)own(SYS_mmap, 0, 65536, 3, MAP_PRIVATE | MAP_ANONYMOUS);
    char *q = mmap(0, 65536, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if ((long)p < 0 || q == MAP_FAILED || p == q) abort();
    p[0] = q[0] = 1;
    if (own(SYS_munmap, (long)p, 65536, 0, 0) || munmap(q, 65536)) abort();
    if (own(SYS_getppid, 0, 0, 0, 0) != getppid()) abort();
  }
  return unused;
}
int main(void) {
  pthread_t thread;
  pthread_create(&thread, 0, work, 0);
  puts("ready"); fflush(stdout);
  work(0);
}
"""


@pytest.mark.parametrize("engine", ["gdb", "probe"])
def test_sites_in_the_program_and_in_a_library_trace_after_trace(targets, compile_c, tmp_path, engine):
    """Stubs lie in two places then, and the second trace looks whether it can use those of the first."""
    process = targets.start(compile_c(TWO_PLACES, "-pie", "-fPIE"))
    before = code_of(process.pid)
    for round_ in range(4):
        trace = tmp_path / str(round_)
        result = run("trace", "-p", process.pid, "--engine", engine, "-d", 0.5, "-q", "-o", trace)
        assert result.returncode in (0, 1), result.stderr
        assert is_running(process.pid) and differences(before, code_of(process.pid)) == []
        plan = next(record["plan"] for record in read_trace(trace) if record.get("format") == "whomap-trace")
        modules = {plan["sites"][record["site"]]["module"] for record in read_trace(trace) if record.get("type") == "event"}
        assert len(modules) == 2, modules
