# SPDX-License-Identifier: Apache-2.0
"""whomap plan against real calls: no call that maps memory comes from an address the plan does not have."""

import json
import os
import re
import shutil
import signal
import subprocess

import pytest

from support import EXAMPLES, is_running, report_of, run, status_field, wait_until

NUMBERS = {"mmap": 9, "munmap": 11, "mremap": 25, "brk": 12}
CALL = re.compile(r"\[([0-9a-f]{16})\] (mmap|munmap|mremap|brk)\(")

TRAFFIC = r"""
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static void *inlined_mmap(size_t n) {
  register long r10 __asm__("r10") = MAP_PRIVATE | MAP_ANONYMOUS, r8 __asm__("r8") = -1, r9 __asm__("r9") = 0;
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "a"(9), "D"(0), "S"(n), "d"(PROT_READ | PROT_WRITE), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return (void *)result; }
int main(void) {
  puts("ready"); fflush(stdout);
  for (;;) {
    void *p = inlined_mmap(65536); munmap(p, 65536);
    p = (void *)syscall(SYS_mmap, 0, 8192, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);
    p = mremap(p, 8192, 1 << 20, MREMAP_MAYMOVE); syscall(SYS_munmap, p, 1 << 20);
    p = malloc(400000); *(volatile char *)p = 1; free(p);
    p = malloc(100000); *(volatile char *)p = 1; free(p);
    struct timespec pause = {0, 5000000}; nanosleep(&pause, 0);
  }
}
"""

GO = """
package main
import ("fmt"; "syscall"; "time")
var keep [][]byte
func main() {
  fmt.Println("ready")
  for { p, _ := syscall.Mmap(-1, 0, 65536, 3, 0x22); syscall.Munmap(p); keep = append(keep, make([]byte, 1<<20)); time.Sleep(5 * time.Millisecond) }
}
"""


def real_calls(pid, log, at_least=40):
    """[(address after the syscall instruction, call)] that strace sees."""
    tracer = subprocess.Popen(["strace", "-f", "-i", "-e", "trace=mmap,munmap,mremap,brk", "-p", str(pid), "-o", log],
                              stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: log.exists() and len(CALL.findall(log.read_text())) >= at_least, "calls seen by strace")
    finally:
        tracer.send_signal(signal.SIGINT)
        tracer.wait()
    return [(int(address, 16), call) for address, call in CALL.findall(log.read_text())]


def check(process, tmp_path, at_least=40):
    """Compares plan and calls; returns the plan's sites."""
    sites = json.loads(run("plan", "-p", process.pid, "--format", "json").stdout)["sites"]
    by_return = {int(site["return_address"], 16): site for site in sites}
    for address, call in real_calls(process.pid, tmp_path / "strace.log", at_least):
        assert address in by_return, f"{call} returned to {address:#x}, which the plan has not"
        site = by_return[address]
        assert site["watch"] != "none", site
        assert NUMBERS[call] in site["numbers"], (call, site)
    assert is_running(process.pid)
    return sites


def go_build(tmp_path, **environment):
    if shutil.which("go") is None:
        pytest.skip("go is not installed (golang-go)")
    (tmp_path / "main.go").write_text(GO)
    subprocess.run(["go", "build", "-o", tmp_path / "gotest", "main.go"], cwd=tmp_path, check=True,
                   env={**os.environ, "GOFLAGS": "-mod=mod", "GOCACHE": str(tmp_path / "cache"), "GO111MODULE": "off",
                        "CGO_ENABLED": "0", **environment})
    return tmp_path / "gotest"


@pytest.mark.parametrize("kind", ["dynamic", "static", "stripped-static", "musl", "go"])
def test_every_real_call_is_in_the_plan(targets, compile_c, tmp_path, kind):
    if kind == "go":
        program = go_build(tmp_path)
    elif kind == "musl":
        if shutil.which("musl-gcc") is None:
            pytest.skip("musl-gcc is not installed (musl-tools)")
        program = compile_c(TRAFFIC, "-static", compiler="musl-gcc")
    else:
        program = compile_c(TRAFFIC, *({"dynamic": [], "static": ["-static"], "stripped-static": ["-static", "-s"]}[kind]))
    sites = check(targets.start(program), tmp_path)
    if kind == "dynamic":
        inlined = [site for site in sites if site["module"].endswith("/program") and site["kind"] == "constant"]
        assert [site["number"] for site in inlined] == [9]
        callers = [(site["number"], site["dispatcher"]) for site in sites if site["kind"] == "caller-constant"]
        assert sorted(callers) == [(9, "syscall"), (11, "syscall")]


@pytest.mark.skipif(not (EXAMPLES / "ucx_case").exists(), reason="the ucx example was not built: libucx-dev is missing")
@pytest.mark.parametrize("mode", ["appmmap", "invq"])
def test_ucx(targets, tmp_path, mode):
    process = targets.start(EXAMPLES / "ucx_case", mode, ready=False,
                            env={"UCX_MEM_MMAP_HOOK_MODE": "bistro", "LEAK_SECS": "100", "UCX_LOG_LEVEL": "error"})
    wait_until(lambda: "libucs" in open(f"/proc/{process.pid}/maps").read(), "UCX to be loaded")
    wait_until(lambda: open(f"/proc/{process.pid}/syscall").read().split()[0] in ("35", "230"), "the loop of the case")
    sites = check(process, tmp_path, at_least=20)
    assert any(site["symbol"] == "ucm_brk_syscall" and site["kind"] == "constant" and site["number"] == 12 for site in sites)
    # libc's own mmap was overwritten at its entry; its old syscall instruction stays in the plan and says so.
    patched = [site for site in sites if site["module"].endswith("libc.so.6") and site["numbers"] == [9]
               and site["kind"] == "constant"]
    assert patched and all("patched at run time" in site["reason"] for site in patched)


@pytest.mark.parametrize("name", ["with space", "new\nline", "gone (deleted)", "quote'''\\ \""])
def test_odd_and_deleted_executables(targets, compile_c, tmp_path, name):
    program = tmp_path / name
    shutil.move(compile_c(TRAFFIC), program)
    process = targets.start(program)
    program.unlink()
    assert any(site["symbol"] == "inlined_mmap" or site["symbol"] == "main" for site in check(process, tmp_path)
               if site["module"].split("/")[-1].startswith(name.split("\n")[0].split("'")[0]))
    result = run("trace", "-p", process.pid, "-d", 1, "-o", tmp_path / "t", "--format", "json")
    assert result.returncode in (0, 1), result.stderr
    assert any("main" == frame["function"] for stack in report_of(result)["stacks"] for frame in stack["frames"])


def test_another_mount_namespace(targets, compile_c, tmp_path):
    """The program lies on a tmpfs that only the target's mount namespace has."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        pytest.skip("needs the right to make a mount namespace")
    program = compile_c(TRAFFIC)
    inside = tmp_path / "inside"
    inside.mkdir()
    process = targets.start("unshare", "-m", "sh", "-c",
                            f"mount -t tmpfs tmpfs {inside} && cp {program} {inside}/hidden && exec {inside}/hidden")
    assert not (inside / "hidden").exists()
    assert any(site["module"].endswith("/hidden") and site["kind"] == "constant" for site in check(process, tmp_path))


def test_aarch64_files_are_planned_offline(tmp_path):
    program = go_build(tmp_path, GOARCH="arm64")
    plan = json.loads(run("plan", "--elf", program, "--format", "json").stdout)
    assert plan["machine"] == "aarch64"
    assert any(222 in site["numbers"] for site in plan["sites"])  # mmap's number there


def test_observe_counts_without_harm(targets, compile_c):
    process = targets.start(compile_c("""
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int main(void) {
  puts("ready"); fflush(stdout);
  for (;;) { syscall(SYS_getppid); struct timespec pause = {0, 10000000}; nanosleep(&pause, 0); }
}
"""))
    result = run("plan", "-p", process.pid, "--observe", 2, "--format", "json")
    if result.returncode in (4, 5):
        pytest.skip(result.stderr)
    plan = json.loads(result.stdout)
    observed = [site["observed"] for site in plan["sites"] if site["symbol"] == "syscall" and site["watch"] != "none"]
    assert len(observed) == 1
    # 100 calls a second and a little less; the machine may be slow, but not faster than the pause allows.
    assert 20 < observed[0]["per_second"] <= 110
    assert "not stopped" in plan["observed_how"]
    assert is_running(process.pid) and status_field(process.pid, "TracerPid") == "0"


def test_names_in_the_table_are_demangled(tmp_path):
    source, program = tmp_path / "pool.cpp", tmp_path / "pool"
    source.write_text(r"""
        #include <sys/mman.h>
        namespace pool { struct Arena {
          __attribute__((noinline)) long take(unsigned long size) {
            long result;
            register long r10 __asm__("r10") = MAP_PRIVATE | MAP_ANONYMOUS, r8 __asm__("r8") = -1, r9 __asm__("r9") = 0;
            __asm__ volatile("syscall" : "=a"(result) : "a"(9), "D"(0), "S"(size), "d"(3), "r"(r10), "r"(r8), "r"(r9)
                             : "rcx", "r11", "memory");
            return result; } }; }
        int main() { return pool::Arena().take(4096) == 0; }""")
    subprocess.run(["g++", "-O1", source, "-o", program], check=True)
    table = run("plan", "--elf", program).stdout
    assert "pool::Arena::take(unsigned long)+0x" in table and "_ZN" not in table, table
    assert "1 site, 1 of them watched." in table, table
    site, = json.loads(run("plan", "--elf", program, "--format", "json").stdout)["sites"]
    assert site["symbol"].startswith("_ZN"), "the file keeps what the linker says"


def test_observe_on_a_file_is_wrong_usage():
    assert run("plan", "--elf", EXAMPLES / "raw_mmap", "--observe", 1).returncode == 2


def test_a_plan_of_other_code_is_refused(targets, compile_c, tmp_path):
    process = targets.start(compile_c(TRAFFIC, name="one"))
    plan = tmp_path / "plan.json"
    assert run("plan", "-p", process.pid, "--format", "json", "-o", plan).returncode == 0
    other = targets.start(compile_c(TRAFFIC.replace("65536", "32768"), name="two"))
    result = run("trace", "-p", other.pid, "--plan", plan, "-d", 1, cwd=tmp_path)
    assert result.returncode == 6 and "build-id" in result.stderr
    assert len(result.stderr.splitlines()) == 1 and is_running(other.pid)


def test_prefixed_instructions_and_computed_jumps(targets, compile_c, tmp_path):
    """The processor takes prefixes before syscall; and a computed jump may lead right to one, past the mov
    that stands before it."""
    process = targets.start(compile_c(r"""
#include <poll.h>
#include <stdio.h>
#define MAP(code) ({ register long r10 __asm__("r10") = 0x22, r8 __asm__("r8") = -1, r9 __asm__("r9") = 0; long result; \
  __asm__ volatile(code : "=a"(result) : "D"(0), "S"(4096), "d"(3), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "rbx", "memory"); result; })
__attribute__((noinline)) static long rex(void) { return MAP("mov $9,%%eax; .byte 0x48,0x0f,0x05"); }
__attribute__((noinline)) static long sized(void) { return MAP("mov $9,%%eax; .byte 0x66,0x0f,0x05"); }
__attribute__((noinline)) static long repeated(void) { return MAP("mov $9,%%eax; .byte 0xf3,0x0f,0x05"); }
__attribute__((noinline)) static long computed(void) {
  return MAP("lea 2f(%%rip),%%rbx; mov $9,%%eax; jmp *%%rbx; mov $39,%%eax; 2: syscall"); }
int main(void) {
  puts("ready"); fflush(stdout);
  for (;;) { rex(); sized(); repeated(); computed(); poll(0, 0, 10); }
}
"""))
    sites = check(process, tmp_path)
    kinds = {site["symbol"].split(".")[0]: site["kind"] for site in sites if site["module"].endswith("/program")}
    assert kinds == {"rex": "constant", "sized": "constant", "repeated": "constant", "computed": "variable"}
    # Breakpoints at such places work too.
    report = report_of(run("trace", "-p", process.pid, "-d", 1, "-o", tmp_path / "t", "--format", "json"))
    found = {frame["function"] for stack in report["stacks"] for frame in stack["frames"]}
    assert {"rex", "sized", "repeated", "computed"} <= found
