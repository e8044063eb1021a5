# SPDX-License-Identifier: Apache-2.0
"""Nothing that lies beside the target's files is executed or believed; what whomap writes is private."""

import os
import stat

import pytest

from support import read_trace, report_of, run

# Says where its script section lies, as GDB's auto-load reads it, and maps memory from code without a name of its own.
PROGRAM = r"""
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
asm(".pushsection .debug_gdb_scripts, \"MS\",@progbits,1\n"
    ".byte 4\n.ascii \"inline.py\\n\"\n.ascii \"open('executed-section', 'w')\\n\"\n.byte 0\n"
    ".byte 1\n.asciz \"planted.py\"\n.popsection\n");
/* mmap by a `syscall` of its own: mov %rdi,%rax ... in memory that belongs to no file. */
static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3}; /* push rbp; mov rsp,rbp; call *rdi; pop; ret */
static void maps(void) { mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }
int main(void) {
  void *jit = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memcpy(jit, code, sizeof code);
  printf("ready\n%lx\n", (unsigned long)jit); fflush(stdout);
  for (;;) { ((void (*)(void (*)(void)))jit)(maps); usleep(5000); }
}
"""


@pytest.mark.parametrize("options", [("--engine", "gdb"), ("--engine", "gdb", "--no-stubs"), ("--engine", "probe")])
def test_planted_files_are_not_executed(targets, compile_c, tmp_path, options):
    program = compile_c(PROGRAM, name="planted")
    place = program.parent
    gdb_command = f"shell touch {place}/executed-%s\n"
    python = f"open('{place}/executed-%s', 'w')\n"
    for name in (".gdbinit", "gdbinit", ".gdbearlyinit", "planted-gdb.gdb", "libc.so.6-gdb.gdb"):
        (place / name).write_text(gdb_command % name)
    for name in ("planted-gdb.py", "planted.py", "json.py", "signal.py", "threading.py", "whomap_gdb.py", "gdb.py", "sitecustomize.py"):
        (place / name).write_text(python % name)
    (place / "libthread_db.so.1").write_bytes(b"\x7fELF not a library")
    process = targets.start(program)
    jit = int(process.stdout.readline(), 16)
    perf_map = f"/tmp/perf-{process.pid}.map"
    with open(perf_map, "x") as lines:
        lines.write(f"{jit:x} 1000 wrong_name\n")
    os.chmod(perf_map, 0o666)  # anybody may have written it
    try:
        result = run("trace", "-p", process.pid, "-d", 1, "-o", place / "t", "--format", "json", *options, cwd=place,
                     env={"HOME": str(place), "XDG_CONFIG_HOME": str(place), "DEBUGINFOD_URLS": "http://127.0.0.1:9/"})
        assert result.returncode in (0, 1), result.stderr
    finally:
        os.unlink(perf_map)
    assert not [name for name in os.listdir(place) if name.startswith("executed")]
    assert read_trace(place / "t")[-1]["events"] > 0
    assert "wrong_name" not in result.stdout
    assert report_of(result)["stacks"]


@pytest.mark.parametrize("mode, seen", [(0o600, True), (0o620, False)])
def test_the_names_of_compiled_code_are_the_processes_own(targets, compile_c, tmp_path, mode, seen):
    process = targets.start(compile_c(PROGRAM, name="planted"))
    jit = int(process.stdout.readline(), 16)
    perf_map = f"/tmp/perf-{process.pid}.map"
    with open(perf_map, "x") as lines:
        lines.write(f"{jit:x} 1000 compiled_by_a_runtime\n")
    os.chmod(perf_map, mode)
    try:
        report = report_of(run("trace", "-p", process.pid, "-d", 0.5, "-o", tmp_path / "t", "--format", "json"))
    finally:
        os.unlink(perf_map)
    frames = [frame for stack in report["stacks"] for frame in stack["frames"] if frame["function"] == "compiled_by_a_runtime"]
    assert bool(frames) == seen, report["stacks"]
    assert all(frame["guessed"] for frame in frames)


def test_what_is_written_is_private(targets, compile_c, tmp_path):
    process = targets.start(compile_c(PROGRAM, name="planted"))
    old = os.umask(0)
    try:
        run("trace", "-p", process.pid, "--engine", "gdb", "-d", 0.5, "-o", tmp_path / "t",
            env={"WHOMAP_STATE_DIR": str(tmp_path / "state")})
    finally:
        os.umask(old)
    assert stat.S_IMODE(os.stat(tmp_path / "t").st_mode) == 0o600
    assert stat.S_IMODE(os.stat(tmp_path / "state").st_mode) == 0o700
    files = os.listdir(tmp_path / "state")
    assert files and all(stat.S_IMODE(os.stat(tmp_path / "state" / name).st_mode) == 0o600 for name in files)


def test_links_are_not_followed(targets, compile_c, tmp_path):
    process = targets.start(compile_c(PROGRAM, name="planted"))
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (tmp_path / "t").symlink_to(precious)
    (tmp_path / "state").symlink_to(tmp_path)
    for options, env in ((("-o", tmp_path / "t", "--force"), {}),
                         (("-o", tmp_path / "u"), {"WHOMAP_STATE_DIR": str(tmp_path / "state")})):
        result = run("trace", "-p", process.pid, "-d", 0.3, *options, env=env)
        assert result.returncode == 8, (result.returncode, result.stderr)
    assert precious.read_text() == "precious"
