# SPDX-License-Identifier: Apache-2.0
"""8 threads that do nothing but map, move, check and unmap memory, as fast as they can, while stubs of the probe engine come and
go: nothing of it is noticed, whoever ends at whatever moment."""

import os
import random
import time

import pytest

from killed_supervisor import kill_at_random, kill_before_call, start_trace
from stub_support import Trace
from support import PATIENCE, code_of, run
from test_stubs_unharmed import Load, program  # noqa: F401 (a fixture)

FULL = 0  # microseconds between the rounds of a thread
ROUNDS = int(os.environ.get("WHOMAP_ROUNDS", 5))  # 100 and more: ./dev soak


def rounds_on(targets, program, mode, one_round):  # noqa: F811
    load = Load(targets, program, mode, FULL)
    for number in range(ROUNDS):
        one_round(load, number)
    load.check()


@pytest.mark.parametrize("mode", ["none", "fork", "signals"])
def test_stubs_come_and_go(targets, program, tmp_path, mode):  # noqa: F811
    """In mode fork a child that maps memory comes every 2 ms, in mode signals a handler that does, every 0.9 ms."""
    def one_round(load, _):
        Trace(load.pid, tmp_path / "t", engine="probe", seconds=0.05).finish()
        load.check()

    rounds_on(targets, program, mode, one_round)


def test_whomap_is_killed(targets, program, tmp_path):  # noqa: F811
    def one_round(load, _):
        trace = start_trace(load, tmp_path / "t", engine="probe", seconds=0.2)
        time.sleep(random.uniform(0, 0.2))  # some of them during the installation
        trace.kill()
        trace.communicate(timeout=PATIENCE)
        wait_for_removal(load)
        load.check()

    rounds_on(targets, program, "none", one_round)


def wait_for_removal(load):
    """The supervisor holds the lock until all is removed; repair is refused until then, and has nothing to do after."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if run("repair", "-p", load.pid).returncode == 0:
            return
    raise AssertionError("the supervisor does not end")


@pytest.mark.parametrize("order", ["x", "e"])
def test_exits_or_execs_during_the_installation(targets, program, tmp_path, order):  # noqa: F811
    for _ in range(ROUNDS):
        load = Load(targets, program, "none", FULL)
        trace = start_trace(load, tmp_path / "t", engine="probe", seconds=0.05)
        time.sleep(random.uniform(0, 0.06))
        load.order(order)
        if order == "x":
            assert load.process.wait(PATIENCE) == 0
        else:
            assert load.process.stdout.readline() == b"ready\n"
            load.code = code_of(load.pid)
        _, errors = trace.communicate(timeout=2 * PATIENCE)
        assert trace.returncode in (0, 1, 3), (trace.returncode, errors)
        if order == "e":
            load.check()
            load.process.kill()


@pytest.mark.parametrize("mode", ["none", "signals"])
def test_the_supervisor_is_killed_at_each_of_its_calls(targets, program, tmp_path, mode):  # noqa: F811
    """At each of them in a soak, at some of them else."""
    calls = 200  # 160 and more, depending on what it waits for
    step = max(1, calls // ROUNDS)
    load = Load(targets, program, mode, 2000)
    killed = [kill_before_call(load, tmp_path / "t", number) for number in range(1, calls, step)]
    assert sum(killed) > len(killed) // 2


@pytest.mark.parametrize("engine", ["probe", "gdb"])
def test_the_supervisor_is_killed_at_chance_moments(targets, program, tmp_path, engine):  # noqa: F811
    load = Load(targets, program, "signals", 2000)
    for number in range(ROUNDS):
        kill_at_random(load, tmp_path / "t", engine=engine, removal=number % 2 == 1)
