# SPDX-License-Identifier: Apache-2.0
"""The probe engine: nothing attached, nothing left behind, and the answer that the other engine gives."""

import json
import os
import signal

import pytest

from stub_support import Trace
from support import EXAMPLES, code_of, differences, is_running, run, status_field, wait_until
from test_stubs_unharmed import (MODES, ROUNDS, SIGTRAP_BLOCKED, Load, end_supervisor, end_whomap, in_lanes,
                                 program)  # noqa: F401 (a fixture)


@pytest.mark.parametrize("whom, how", [(end_whomap, signal.SIGINT), (end_whomap, signal.SIGTERM),
                                       (end_whomap, signal.SIGKILL), (end_supervisor, signal.SIGKILL)])
def test_whatever_ends_the_trace(targets, program, tmp_path, whom, how):  # noqa: F811
    def one_round(load, path):
        trace = Trace(load.pid, path, engine="probe").wait_armed().wait_captures(1)
        assert status_field(load.pid, "TracerPid") == "0"  # nothing is attached while it records
        whom(trace, how)
        trace.wait_all_gone()
        load.check()
        assert run("match", path).returncode in (0, 1)
        assert trace.events()

    in_lanes(targets, program, tmp_path, one_round)


def test_both_killed_at_once_and_repaired(targets, program, tmp_path):  # noqa: F811
    """Nobody is left: the stubs go on recording until the ring is full, then only count; repair does the rest."""
    def one_round(load, path):
        trace = Trace(load.pid, path, engine="probe").wait_armed().wait_captures(1)
        for pid in (trace.process.pid, trace.supervisor):
            os.kill(pid, signal.SIGKILL)
        trace.finish(statuses=(-signal.SIGKILL,))
        trace.wait_all_gone()
        assert differences(load.code, code_of(load.pid)) != []
        assert load.moves()
        for _ in range(2):
            repaired = run("repair", "-p", load.pid, env={"PATH": "/nowhere"})
            assert repaired.returncode == 0, repaired
            load.check()

    in_lanes(targets, program, tmp_path, one_round)


@pytest.mark.parametrize("mode", MODES + SIGTRAP_BLOCKED)
def test_goes_on_while_it_is_traced(targets, program, tmp_path, mode):  # noqa: F811
    """During a trace and after it, also after one that was killed."""
    load = Load(targets, program, mode)
    for how in (signal.SIGINT, signal.SIGKILL):
        trace = Trace(load.pid, tmp_path / "t", engine="probe").wait_armed()
        load.start_counting()
        load.wait_rounds(ROUNDS)
        end_whomap(trace, how)
        trace.wait_all_gone()
        load.wait_rounds(ROUNDS)
        load.check()


def shape_of(stack):
    """A stack as both engines must see it."""
    return stack["syscall"], tuple((frame["module"], frame["offset"], frame["function"]) for frame in stack["frames"])


def test_both_engines_see_the_same_stacks(targets, tmp_path):
    """And it works where no GDB is installed."""
    process = targets.start(EXAMPLES / "raw_mmap", 300)
    before = code_of(process.pid)
    seen = {}
    for engine, environment in (("gdb", {}), ("probe", {"PATH": "/nowhere"})):
        result = run("trace", "-p", process.pid, "--engine", engine, "-d", 3, "--format", "json", "-q", "-o",
                     tmp_path / engine, env=environment)
        assert result.returncode == 0, result.stderr
        report = json.loads(result.stdout)
        assert report["trace"]["engine"] == engine and report["trace"]["lost"] == 0
        assert report["stacks"][0]["share"] >= 0.99
        seen[engine] = {shape_of(stack) for stack in report["stacks"]}
        top = shape_of(report["stacks"][0])
        assert seen.setdefault("top", top) == top
    assert seen["gdb"] == seen["probe"]
    assert is_running(process.pid) and differences(before, code_of(process.pid)) == []


def test_its_own_memory_is_no_growth_and_traces_do_not_add_up(targets, tmp_path):
    process = targets.start("python3", "-c", "import sys; print('ready', flush=True); sys.stdin.read()")
    mapped = []
    for round_ in range(4):
        result = run("trace", "-p", process.pid, "--engine", "probe", "-d", 0.5, "--format", "json", "-q", "-o",
                     tmp_path / str(round_))
        report = json.loads(result.stdout)
        assert report["growth"]["mapped_bytes"] == 0 and report["growth"]["rss_shmem_bytes"] == 0, report["growth"]
        assert report["verdict"]["class"] == "not-growing"
        wait_until(lambda: "whomap-ring" not in open(f"/proc/{process.pid}/maps").read(), "the ring to be gone")
        mapped.append(int(status_field(process.pid, "VmSize").split()[0]))
    assert len(set(mapped[1:])) == 1, mapped


KEEPS_ALL = """
import mmap, sys, time
kept = []
print("ready", flush=True)
while True:
    kept.append(mmap.mmap(-1, 65536, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    kept[-1][:8] = len(kept).to_bytes(8, "little")
    for number, each in enumerate(kept, 1):
        assert int.from_bytes(each[:8], "little") == number
    time.sleep(0.01)
"""


def test_there_is_one_whomap_at_a_process(targets, tmp_path):
    """Another trace, or a repair, in the middle would take out what the first one believes to be in."""
    process = targets.start("python3", "-c", KEEPS_ALL)
    trace = Trace(process.pid, tmp_path / "t", engine="probe").wait_armed().wait_captures(20)
    for command in (("repair", "-p"), ("trace", "-d", 1, "-o", tmp_path / "u", "-p")):
        second = run(*command, process.pid)
        assert second.returncode == 3 and "traced by another whomap" in second.stderr
    assert "is traced by another whomap" in " ".join(run("doctor", "-p", process.pid).stdout.split())
    before = trace.path.read_bytes().count(b'"type":"event"')
    trace.wait_captures(before + 20)  # the first one still sees all
    trace.interrupt()
    assert is_running(process.pid) and process.poll() is None
    repaired = run("repair", "-p", process.pid)
    assert repaired.returncode == 0 and "had its own code already" in repaired.stdout
    assert "unused" in run("doctor", "-p", process.pid).stdout
