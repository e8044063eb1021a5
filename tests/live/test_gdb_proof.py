# SPDX-License-Identifier: Apache-2.0
"""Before a GDB is let at a process it has to show on a throw-away one that it can do with stubs what it must."""

import json
import subprocess

import pytest

from stub_support import compile_target, runs_again
from support import EXAMPLES, code_of, differences, functions_of, is_running, report_of, run, wait_until

# Stands for a GDB that does not know an int3 that is in the code already: it never reports those. (munmap goes past GDB.)
BLIND = """import gdb
class Blind(gdb.Breakpoint):
    def __init__(self, spec, **options):
        super().__init__(spec, **options)
        if gdb.selected_inferior().read_memory(int(spec[1:], 16), 1)[0] == b"\\xcc":
            self.enabled = False
gdb.Breakpoint = Blind
"""


def wrapper(folder, name, script):
    path = folder / name
    path.write_text(script)
    path.chmod(0o755)
    return path


@pytest.fixture
def blind(tmp_path):
    (tmp_path / "blind.py").write_text(BLIND)
    return wrapper(tmp_path, "blind-gdb", f'#!/bin/sh\nexec gdb -iex "source {tmp_path}/blind.py" "$@"\n')


@pytest.fixture
def raw_mmap(targets):
    process = targets.start(EXAMPLES / "raw_mmap", 120)
    process.code = code_of(process.pid)
    return process


def check_as_found(process):
    wait_until(lambda: is_running(process.pid), "the process to run on")
    assert differences(process.code, code_of(process.pid)) == []


def test_the_gdb_at_hand_is_proven_without_touching_anybody():
    done = run("prove-gdb", "--gdb", "/usr/bin/gdb")
    assert done.returncode == 0 and done.stdout == "32 calls were captured in their stubs\n"


def test_a_gdb_that_fails_with_stubs_gets_ordinary_breakpoints(raw_mmap, blind, tmp_path):
    env = {"WHOMAP_GDB": str(blind)}
    refused = run("prove-gdb", "--gdb", blind)
    assert refused.returncode == 5 and "of 32 calls it reported 16" in refused.stderr
    traced = run("trace", "-p", raw_mmap.pid, "--engine", "gdb", "-d", 2, "--format", "json", "-o", tmp_path / "t", env=env)
    assert traced.returncode == 0, traced.stderr
    assert "no stubs, ordinary breakpoints instead" in traced.stderr and "throw-away" in traced.stderr
    assert "from_kernel" in functions_of(report_of(traced)["stacks"][0])
    check_as_found(raw_mmap)

    (finding,) = [each for each in json.loads(run("doctor", "--format", "json", env=env).stdout)["machine"]
                  if each["check"] == "stubs"]
    assert finding["state"] == "warning" and "of 32 calls it reported 16" in finding["text"]


@pytest.mark.parametrize("signal_name", ["KILL", "TERM"])
def test_a_gdb_that_is_killed_before_it_watches_is_said_to_be(raw_mmap, tmp_path, signal_name):
    gdb = wrapper(tmp_path, "gdb", f"#!/bin/sh\nkill -{signal_name} $$\n")
    traced = run("trace", "-p", raw_mmap.pid, "--engine", "gdb", "-d", 2, "-o", tmp_path / "t", env={"WHOMAP_GDB": str(gdb)})
    assert traced.returncode == 5 and f"GDB was killed by SIG{signal_name} before it traced" in traced.stderr
    assert len(traced.stderr.splitlines()) == 1 and not (tmp_path / "t").exists()
    check_as_found(raw_mmap)


def test_a_script_uses_stubs_and_survives_the_death_of_its_gdb(targets, tmp_path):
    """The script has a supervisor of its own, which disarms."""
    process = targets.start(compile_target("under_load", tmp_path), "none", 500)
    code = code_of(process.pid)
    script, trace = tmp_path / "x.gdb", tmp_path / "x.trace"
    for _ in range(2):
        written = run("script", "-p", process.pid, "-o", script, "-d", 60, "--trace", trace, "--force",
                      "--syscalls", "mmap,munmap")
        assert written.returncode == 0, written.stderr
        trace.unlink(missing_ok=True)
        gdb = subprocess.Popen(["gdb", "-nx", "-batch", "-x", script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True)
        try:
            wait_until(lambda: trace.exists() and '"type":"event"' in trace.read_text(), "a captured call")
        finally:
            gdb.kill()
            output = gdb.communicate()[0]
        assert "no stubs" not in output, output
        wait_until(lambda: runs_again(process.pid), "the process to run on")
        wait_until(lambda: '"type":"end"' in trace.read_text(), "the trace to be finished")
        wait_until(lambda: differences(code, code_of(process.pid)) == [], "the code as found")
        process.stdin.write(b"r")
        process.stdin.flush()
        _, _, failures, calls = map(int, process.stdout.readline().split())
        assert failures == 0 and calls > 0
