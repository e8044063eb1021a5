# SPDX-License-Identifier: Apache-2.0
"""Bad input gets one line, the right exit status, and leaves nothing behind."""

import json
import os
import pathlib
import shutil
import signal
import subprocess

import pytest

from support import BUILD, EXAMPLES, WHOMAP, is_running, read_trace, run, status_field, wait_until

SLEEPER = """
#include <stdio.h>
#include <unistd.h>
int main(void) { puts("ready"); fflush(stdout); for (;;) pause(); }
"""

# Maps memory now and then; on a line at its standard input it does what argv[1] says.
ON_REQUEST = """
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
static void *mapper(void *unused) {
  for (;;) { mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); poll(NULL, 0, 20); }
  return unused;
}
int main(int count, char **arguments) {
  char byte;
  pthread_t thread;
  pthread_create(&thread, NULL, mapper, NULL);
  puts("ready"); fflush(stdout);
  if (read(0, &byte, 1) != 1) return 9;
  if (count > 1 && !strcmp(arguments[1], "exec")) execl("/bin/sleep", "sleep", "100", (char *)NULL);
  return 3;
}
"""


def check(result, status, *words):
    """One line on standard error with these words, nothing on standard output, this status."""
    assert result.returncode == status, result.stderr
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("whomap: ")
    for word in words:
        assert word in lines[0], lines[0]
    assert "Traceback" not in result.stderr


def trace(*arguments, **options):
    return run("trace", "-d", 1, *arguments, **options)


@pytest.fixture
def nothing_left(tmp_path):
    """A working folder that must be empty afterwards."""
    folder = tmp_path / "working"
    folder.mkdir()
    yield folder
    assert list(folder.iterdir()) == []


@pytest.fixture
def sleeper(targets, compile_c):
    return targets.start(compile_c(SLEEPER, name="sleeper"))


def a_free_pid():
    child = subprocess.Popen(["true"])
    child.wait()
    return child.pid


@pytest.mark.parametrize("command", ["trace", "plan"])
def test_no_such_process(nothing_left, command):
    check(run(command, "-p", a_free_pid(), cwd=nothing_left), 3, "no process")


@pytest.mark.parametrize("pid", ["0", "-1", "x", "1x", "", "99999999999", "4194305"])
def test_not_a_pid(nothing_left, pid):
    result = run("trace", "--pid", pid, cwd=nothing_left)
    check(result, 2)


def test_kernel_thread(nothing_left):
    kernel_threads = [pid for pid in os.listdir("/proc") if pid.isdigit() and status_field(pid, "Kthread") == "1"]
    if not kernel_threads:
        # Older kernels have no such line in status: kthreadd is pid 2 unless this is a container.
        try:
            kernel_threads = ["2"] if status_field(2, "Name") == "kthreadd" else []
        except FileNotFoundError:
            pass
    if not kernel_threads:
        pytest.skip("no kernel thread is visible here (a container)")
    check(trace("-p", kernel_threads[0], cwd=nothing_left), 3, "kernel thread")


def test_own_pid(nothing_left):
    result = subprocess.run(["sh", "-c", f'exec "{WHOMAP}" trace -p $$'], capture_output=True, text=True, cwd=nothing_left)
    check(result, 2, "own process")


def test_a_thread_is_not_a_process(nothing_left, targets, compile_c):
    process = targets.start(compile_c(ON_REQUEST))
    thread = max(int(tid) for tid in os.listdir(f"/proc/{process.pid}/task"))
    check(trace("-p", thread, cwd=nothing_left), 3, f"thread of process {process.pid}")


def test_other_user(nothing_left, sleeper, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root to become another user")
    # The build folder may be out of reach for that user.
    folder = tmp_path / "reachable"
    shutil.copytree(BUILD, folder, ignore=lambda path, names: [n for n in names if n not in ("whomap", "plugin", "signatures.json")]
                    if path == str(BUILD) else [])
    for parent in (folder, *[p for p in folder.parents if str(p).startswith("/tmp/")]):
        os.chmod(parent, 0o755)
    os.chmod(nothing_left, 0o777)
    result = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", folder / "whomap", "trace",
                             "-p", str(sleeper.pid)], capture_output=True, text=True, cwd=nothing_left)
    check(result, 4, "belongs to user 0", "user 65534")


def test_already_traced_names_the_tracer(nothing_left, sleeper):
    tracer = subprocess.Popen(["strace", "-p", str(sleeper.pid), "-o", "/dev/null"], stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: status_field(sleeper.pid, "TracerPid") != "0", "strace")
        check(trace("-p", sleeper.pid, cwd=nothing_left), 3, f"strace (pid {tracer.pid})")
    finally:
        tracer.terminate()
        tracer.wait()


def test_stopped(nothing_left, sleeper):
    os.kill(sleeper.pid, signal.SIGSTOP)
    wait_until(lambda: status_field(sleeper.pid, "State")[0] == "T", "the stop")
    check(trace("-p", sleeper.pid, cwd=nothing_left), 3, "stopped by job control", "kill -CONT")
    assert status_field(sleeper.pid, "State")[0] == "T"


def test_zombie(nothing_left):
    child = subprocess.Popen(["true"])
    wait_until(lambda: status_field(child.pid, "State")[0] == "Z", "the zombie")
    check(trace("-p", child.pid, cwd=nothing_left), 3, "zombie")
    child.wait()


@pytest.mark.parametrize("how, reason", [("exit", "target-exited"), ("exec", "target-exec")])
def test_target_leaves_during_the_trace(targets, compile_c, tmp_path, how, reason):
    process = targets.start(compile_c(ON_REQUEST), how)
    path = tmp_path / "t"
    tracer = subprocess.Popen([WHOMAP, "trace", "-p", str(process.pid), "-d", "60", "-o", path, "--format", "json"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: path.exists() and '"type":"event"' in path.read_text(), "a captured call")
    process.stdin.write(b"\n")
    process.stdin.flush()
    out, err = tracer.communicate(timeout=60)
    assert tracer.returncode == 3, err
    assert ("has ended" if how == "exit" else "has exec'd") in err
    assert json.loads(out)["trace"]["events"] > 0  # what was captured is kept and reported
    assert read_trace(path)[-1]["reason"] == reason
    if how == "exec":
        wait_until(lambda: is_running(process.pid), "sleep to run on untraced")
        assert status_field(process.pid, "Name") == "sleep"
    else:
        assert process.wait(60) == 3  # its own exit status


def test_gdb_missing(nothing_left, sleeper):
    check(trace("--engine", "gdb", "-p", sleeper.pid, env={"PATH": "/nonexistent"}, cwd=nothing_left), 5, "gdb is not on PATH", "apt-get")
    check(trace("--engine", "gdb", "-p", sleeper.pid, env={"WHOMAP_GDB": "/nonexistent/gdb"}, cwd=nothing_left), 5, "/nonexistent/gdb")
    assert is_running(sleeper.pid)


def test_gdb_without_python(nothing_left, sleeper, tmp_path):
    gdb = tmp_path / "gdb"
    gdb.write_text("#!/bin/sh\nfor word; do case $word in echo*) echo \"${word#echo }\";; esac; done\n"
                   "echo 'Python scripting is not supported in this copy of GDB.' >&2\nexit 1\n")
    gdb.chmod(0o755)
    check(trace("--engine", "gdb", "-p", sleeper.pid, env={"WHOMAP_GDB": str(gdb)}, cwd=nothing_left), 5, "no Python inside")
    assert is_running(sleeper.pid)


def test_gdb_that_hangs_or_crashes(nothing_left, sleeper, tmp_path):
    gdb = tmp_path / "gdb"
    gdb.write_text("#!/bin/sh\nkill -SEGV $$\n")
    gdb.chmod(0o755)
    result = trace("--engine", "gdb", "-p", sleeper.pid, env={"WHOMAP_GDB": str(gdb)}, cwd=nothing_left)
    check(result, 5)
    assert is_running(sleeper.pid)


def test_unwritable_output(nothing_left, sleeper):
    for path in ("/nonexistent/folder/t", "/proc/t"):
        check(trace("-p", sleeper.pid, "-o", path, cwd=nothing_left), 8, path)
    assert is_running(sleeper.pid)


def test_existing_output_needs_force(sleeper, tmp_path):
    path = tmp_path / "t"
    path.write_text("precious")
    check(trace("-p", sleeper.pid, "-o", path), 8, "exists already", "--force")
    check(run("plan", "-p", sleeper.pid, "-o", path), 8, "exists already", "--force")
    check(run("script", "-p", sleeper.pid, "-o", path), 8, "exists already", "--force")
    assert path.read_text() == "precious"
    forced = trace("-p", sleeper.pid, "-o", path, "--force")
    assert forced.returncode == 1, forced.stderr  # nothing grew
    assert path.read_text().startswith('{"format":"whomap-trace"')


def test_output_is_never_written_through_a_link(sleeper, tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("precious")
    link = tmp_path / "link"
    link.symlink_to(precious)
    for force in ((), ("--force",)):
        check(trace("-p", sleeper.pid, "-o", link, *force), 8)
        assert precious.read_text() == "precious" and link.is_symlink()


def test_disk_full(targets, compile_c, tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", folder],
                                           capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount a small tmpfs")
    try:
        process = targets.start(EXAMPLES / "raw_mmap", 100)
        result = run("trace", "-p", process.pid, "-d", 20, "-o", folder / "t")
        assert result.returncode == 8, result.stderr
        assert "No space left" in result.stderr
        assert is_running(process.pid)
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("arguments", [
    ("--bogus",), ("bogus",), ("trace",), ("trace", "-p"), ("trace", "-p", "1", "--bogus"), ("trace", "-p", "1", "-d", "0"),
    ("trace", "-p", "1", "-d", "x"), ("trace", "-p", "1", "-d", "nan"), ("trace", "-p", "1", "--max-hits", "0"),
    ("trace", "-p", "1", "--max-hits", "-5"), ("trace", "-p", "1", "--engine", "warp"),
    ("trace", "-p", "1", "--syscalls", "open"), ("trace", "-p", "1", "--syscalls", ""),
    ("trace", "-p", "1", "--format", "xml"), ("trace", "-p", "1", "--color", "maybe"), ("trace", "-p", "1", "extra"),
    ("plan",), ("plan", "-p", "1", "--format", "xml"), ("plan", "-p", "1", "--module", "("),
    ("script", "-p", "1"), ("script", "-p", "1", "-o", "x", "-d", "-1"), ("match",), ("match", "--bogus"),
    ("match", "a", "b", "c"), ("report",), ("report", "a", "--format", "xml"), (),
])
def test_wrong_usage(nothing_left, arguments):
    check(run(*arguments, cwd=nothing_left), 2, "--help")


@pytest.mark.parametrize(("arguments", "needed"), [
    (("match", "a", "b", "c"), "at most 2: match TRACE [REGIONS]"), (("report", "a", "b"), "it takes one: report TRACE"),
    (("trace", "-p", "1", "extra"), "it takes options only"),
])
def test_too_many_arguments_are_said_in_our_words(nothing_left, arguments, needed):
    result = run(*arguments, cwd=nothing_left)
    check(result, 2, needed)
    assert "positional" not in result.stderr


@pytest.mark.parametrize("command", ["match", "report"])
def test_unreadable_and_damaged_traces(tmp_path, command):
    check(run(command, tmp_path / "missing"), 6, "missing")
    check(run(command, tmp_path), 6)
    for name, content in {"empty": b"", "text": b"hello\n", "binary": os.urandom(4096), "gzip": b"\x1f\x8b\x08\x00",
                          "half": b'{"format":"whomap-tr', "array": b"[1,2]\n", "deep": b"[" * 100000,
                          "newer": b'{"format":"whomap-trace","version":999}\n',
                          "bare": b'{"format":"whomap-trace","version":1}\n'}.items():
        path = tmp_path / name
        path.write_bytes(content)
        check(run(command, path), 6, name)


def test_the_input_is_never_the_output(tmp_path):
    log = pathlib.Path(__file__).parents[1] / "data" / "import" / "strace.txt"
    copy, link, trace = tmp_path / "log", tmp_path / "link", tmp_path / "s.trace"
    copy.write_bytes(log.read_bytes())
    link.symlink_to(copy)
    for output in (copy, link):
        check(run("import", "--from", "strace", copy, "-o", output, "--force"), 8, "is the log that is read")
    assert copy.read_bytes() == log.read_bytes()
    assert run("import", "--from", "strace", copy, "-o", trace).returncode == 0
    before = trace.read_bytes()
    check(run("report", trace, "--format", "json", "-o", trace, "--force"), 8, "is a file that is read")
    check(run("match", trace, "-o", trace, "--force"), 8, "is a file that is read")
    assert trace.read_bytes() == before
    # Two in one file are two processes' calls, which no answer can be about.
    both = tmp_path / "both.trace"
    both.write_bytes(before + before)
    check(run("match", both), 6, f"holds another trace from line {before.count(10) + 1} on")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    check(run("match", pipe), 6, "is a pipe")


@pytest.mark.parametrize("command", [(), ("trace",), ("plan",), ("script",), ("match",), ("report",)])
def test_help_and_version_everywhere(command):
    for option in ("--help", "--version"):
        result = run(*command, option)
        assert result.returncode == 0 and result.stdout and not result.stderr
    assert "whomap " in run(*command, "--help").stdout


def test_standard_output_that_cannot_be_written(sleeper):
    with open("/dev/full", "w") as full:
        for arguments in (["--help"], ["plan", "-p", str(sleeper.pid)], ["trace", "--help"]):
            result = subprocess.run([WHOMAP, *arguments], stdout=full, stderr=subprocess.PIPE, text=True)
            assert result.returncode == 8, arguments
            assert len(result.stderr.splitlines()) == 1
