# SPDX-License-Identifier: Apache-2.0
"""whomap script --plain: a trace for a GDB without Python."""

import re
import subprocess

import pytest

from support import EXAMPLES, code_of, differences, is_running, run, wait_until

CALL = re.compile(r"^Syscall number (\d+) thread \d+ args ((?:0x[0-9a-f]+ ?){6})$")
RETURNED = re.compile(r"^Syscall returned: rax = 0x([0-9a-f]+)$")


def write(process, path, *options):
    written = run("script", "--plain", "-p", process.pid, "-o", path, *options)
    assert written.returncode == 0, written.stderr
    assert "python" not in path.read_text().replace("without Python", "")


def carry_out(script):
    return subprocess.run(["gdb", "-nx", "-batch", "-x", str(script)], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=60)


def calls_of(log):
    """[(number, args, result, functions)] of a log."""
    calls, call, functions = [], None, []
    for line in log.splitlines():
        if match := CALL.match(line):
            call, functions = (int(match[1]), [int(word, 16) for word in match[2].split()]), []
        elif match := re.match(r"^#\d+ +(?:0x[0-9a-f]+ in )?(\S+) \(", line):
            functions.append(match[1])
        elif match := RETURNED.match(line):
            calls.append((*call, int(match[1], 16), functions))
    return calls


def test_logs_what_the_target_did_and_leaves_it_as_it_was(targets, tmp_path):
    log = tmp_path / "target.log"
    process = targets.start(EXAMPLES / "raw_mmap", 60, log)
    before = code_of(process.pid)
    write(process, tmp_path / "x.gdb", "-d", 3)
    done = carry_out(tmp_path / "x.gdb")
    calls = [call for call in calls_of(done.stdout) if "handle_request" in call[3]]
    assert len(calls) > 50, done.stdout + done.stderr
    did = set(log.read_text().splitlines())
    for number, args, result, functions in calls:
        if number == 9:
            kind = "leak" if "pool_grow" in functions else "map"
            assert f"{kind} {result:#x} {args[1]}" in did
        else:
            assert number == 11 and f"unmap {args[0]:#x} {args[1]}" in did
    wait_until(lambda: is_running(process.pid), "the target to run on")
    assert differences(before, code_of(process.pid)) == []


def test_stops_by_hits(targets, tmp_path):
    process = targets.start(EXAMPLES / "raw_mmap", 60)
    write(process, tmp_path / "x.gdb", "-d", 50, "--max-hits", 7)
    assert carry_out(tmp_path / "x.gdb").stdout.count("Syscall returned") == 7
    wait_until(lambda: is_running(process.pid), "the target to run on")


def test_ends_with_the_target(targets, tmp_path):
    process = targets.start(EXAMPLES / "raw_mmap", 3)
    write(process, tmp_path / "x.gdb", "-d", 50)
    done = carry_out(tmp_path / "x.gdb")  # returns: no GDB is left
    assert "exited normally" in done.stdout
    assert process.wait(10) == 0


@pytest.mark.parametrize("kind", [("--plain",), ()], ids=["plain", "python"])
def test_a_gdb_that_is_attached_already_is_sent_away(targets, tmp_path, kind):
    """GDB ends the process that it has before it attaches to another, or to the same."""
    process = targets.start(EXAMPLES / "raw_mmap", 60)
    before = code_of(process.pid)
    script = tmp_path / "x.gdb"
    assert run("script", *kind, "-p", process.pid, "-o", script, "-d", 2, cwd=tmp_path).returncode == 0
    done = subprocess.run(["gdb", "-nx", "-batch", "-p", str(process.pid), "-x", str(script)], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=60, cwd=tmp_path)
    assert "start it without -p" in done.stdout + done.stderr, done.stdout + done.stderr
    wait_until(lambda: is_running(process.pid), "the target to run on")
    assert process.poll() is None and differences(before, code_of(process.pid)) == []
