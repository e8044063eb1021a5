# SPDX-License-Identifier: Apache-2.0
"""A process with 8 threads that map memory is as well after a trace as before it, whatever ends the trace, and whatever the
process does meanwhile."""

import concurrent.futures
import os
import resource
import signal
import subprocess

import pytest

from stub_support import Trace, command_line, compile_target, runs_again
from support import WHOMAP, code_of, differences, run, status_field, wait_until

ROUNDS = 20


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return compile_target("under_load", tmp_path_factory.mktemp("unharmed"))


class Load:
    """A target that counts what it does."""

    def __init__(self, targets, program, mode, pace=8000):
        self.process = targets.start(program, mode, pace)
        self.pid = self.process.pid
        self.code = code_of(self.pid)

    def order(self, letter):
        self.process.stdin.write(letter.encode())
        self.process.stdin.flush()

    def ask(self, letter):
        self.order(letter)
        return self.process.stdout.readline().decode().split()

    def counts(self):
        """(rounds, good ones, failures, calls) since the last time."""
        return tuple(map(int, self.ask("r")))

    def start_counting(self):
        self.counts()
        self.rounds = self.good = 0

    def wait_rounds(self, count):
        """So many more of what the mode does, all of them good but for those under way."""
        wanted = self.rounds + count

        def look():
            rounds, good, failures, _ = self.counts()
            assert failures == 0
            self.rounds += rounds
            self.good += good
            return self.rounds >= wanted

        wait_until(look, f"{count} rounds")
        assert abs(self.rounds - self.good) <= 8, (self.rounds, self.good)

    def check(self, *, loaded=True):
        """Alive, running, its code as found; and whatever it checks about itself holds."""
        assert self.process.poll() is None, f"the target has ended: {self.process.returncode}"
        wait_until(lambda: runs_again(self.pid), "the target to run on")
        assert differences(self.code, code_of(self.pid)) == []
        wait_until(self.moves, "new calls of the target")
        rounds, good, failures, calls = self.counts()
        assert failures == 0
        assert not loaded or calls > 0
        return rounds, good

    def moves(self):
        """Every thread gets on."""
        before = voluntary_switches(self.pid)
        wait_until(lambda: all(now != before.get(tid) for tid, now in voluntary_switches(self.pid).items()),
                   "all threads to get on")
        return True


def voluntary_switches(pid):
    """The counts of the threads that sleep between their rounds: not of the first, which waits for orders."""
    counts = {}
    for tid in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{tid}/status") as status:
                counts[tid] = next(line for line in status if line.startswith("voluntary_ctxt_switches"))
        except OSError:
            pass
    counts.pop(str(pid), None)
    return counts


def end_whomap(trace, how):
    trace.process.send_signal(how)
    trace.finish(statuses=(-how,) if how == signal.SIGKILL else (0, 1, 130, -how))


def end_gdb(trace, how):
    os.kill(trace.gdb, how)
    trace.finish()


def end_supervisor(trace, how):
    os.kill(trace.supervisor, how)
    trace.interrupt()


def in_lanes(targets, program, tmp_path, one_round, *, mode="none", pace=2000):
    """ROUNDS rounds, on four targets at a time: most of a round is waiting."""
    lanes = 4

    def lane(index):
        load = Load(targets, program, mode, pace)
        for _ in range(ROUNDS // lanes):
            one_round(load, tmp_path / f"trace{index}")

    with concurrent.futures.ThreadPoolExecutor(lanes) as pool:
        for result in [pool.submit(lane, index) for index in range(lanes)]:
            result.result()


@pytest.mark.parametrize("whom, how", [
    (end_whomap, signal.SIGINT), (end_whomap, signal.SIGTERM), (end_whomap, signal.SIGKILL),
    (end_gdb, signal.SIGTERM), (end_gdb, signal.SIGKILL), (end_supervisor, signal.SIGKILL)])
def test_whatever_ends_the_trace(targets, program, tmp_path, whom, how):
    def one_round(load, path):
        trace = Trace(load.pid, path).wait_armed().wait_captures(1)
        whom(trace, how)
        trace.wait_all_gone()
        load.check()
        assert status_field(load.pid, "TracerPid") == "0"
        assert run("match", path).returncode in (0, 1)
        assert trace.events()

    in_lanes(targets, program, tmp_path, one_round)


def test_all_three_killed_at_once_and_repaired(targets, program, tmp_path):
    """Nobody is left; the handler lets the threads go on, and repair does the rest, as often as it is asked."""
    def one_round(load, path):
        trace = Trace(load.pid, path).wait_armed().wait_captures(1)
        for pid in (trace.process.pid, trace.supervisor, trace.gdb):
            os.kill(pid, signal.SIGKILL)
        trace.finish(statuses=(-signal.SIGKILL,))
        trace.wait_all_gone()
        wait_until(lambda: runs_again(load.pid) or os.kill(load.pid, signal.SIGCONT), "the target to run on")
        assert differences(load.code, code_of(load.pid)) != []
        assert load.moves()
        for _ in range(2):
            repaired = run("repair", "-p", load.pid, env={"PATH": "/nowhere"})  # needs no GDB
            assert repaired.returncode == 0, repaired
            load.check()

    in_lanes(targets, program, tmp_path, one_round)


# What the process does by itself; the kinds that need a pace of their own.
MODES = ["fork", "vfork", "vfork_exec", "spawn", "clone", "raw_clone", "system", "popen", "dlopen", "threads", "detached", "segv",
         "int3", "signals", "blocked", "altstack", "mdwe", "seccomp"]


@pytest.mark.parametrize("mode", MODES)
def test_goes_on_while_it_is_traced(targets, program, tmp_path, mode):
    """During a trace and after it, also after one whose GDB was killed."""
    load = Load(targets, program, mode)
    for end, how in ((end_whomap, signal.SIGINT), (end_gdb, signal.SIGKILL)):
        trace = Trace(load.pid, tmp_path / "t").wait_armed()
        load.start_counting()
        load.wait_rounds(ROUNDS)
        end(trace, how)
        trace.wait_all_gone()
        load.wait_rounds(ROUNDS)
        load.check()
        assert trace.events()
        assert run("match", tmp_path / "t").returncode in (0, 1)
