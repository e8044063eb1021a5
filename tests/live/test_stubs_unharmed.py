# SPDX-License-Identifier: Apache-2.0
"""A process with 8 threads that map memory is as well after a trace as before it, whatever ends the trace, and whatever the
process does meanwhile."""

import concurrent.futures
import os
import signal
import subprocess

import pytest

from stub_support import Trace, compile_target, runs_again
from support import code_of, differences, run, status_field, wait_until

ROUNDS = int(os.environ.get("WHOMAP_ROUNDS", 20))  # 100 and more: ./dev soak


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


def in_lanes(targets, program, folder, one_round, *, mode="none", pace=2000):
    """ROUNDS rounds one_round(load, path), on four targets at a time: most of a round is waiting."""
    lanes = 4

    def lane(index):
        load = Load(targets, program, mode, pace)
        for _ in range(ROUNDS // lanes):
            one_round(load, folder / f"trace{index}")

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


# Those that make calls with SIGTRAP blocked are not traced by a GDB that is killed: an int3 that is met then, with no
# tracer left, ends the process. tests/bench/gdb_killed.py measures how often.
SIGTRAP_BLOCKED = ["blocked", "spawn", "system", "popen", "detached", "threads"]
MODES = ["fork", "vfork", "vfork_exec", "clone", "raw_clone", "dlopen", "segv", "int3", "signals", "altstack", "mdwe", "seccomp"]


@pytest.mark.parametrize("mode", MODES + SIGTRAP_BLOCKED)
def test_goes_on_while_it_is_traced(targets, program, tmp_path, mode):
    """During a trace and after it, also after one whose GDB was killed."""
    load = Load(targets, program, mode)
    ends = [(end_whomap, signal.SIGINT), (end_gdb, signal.SIGKILL)]
    for end, how in ends[:1] if mode in SIGTRAP_BLOCKED else ends:
        trace = Trace(load.pid, tmp_path / "t").wait_armed()
        load.start_counting()
        load.wait_rounds(ROUNDS)
        end(trace, how)
        trace.wait_all_gone()
        load.wait_rounds(ROUNDS)
        load.check()
        assert trace.events()
        assert run("match", tmp_path / "t").returncode in (0, 1)


def test_ends_by_itself(targets, program, tmp_path):
    """With 8 threads inside the stubs, most rounds."""
    def one_round(_, path):
        load = Load(targets, program, "none", 500)
        trace = Trace(load.pid, path).wait_armed().wait_captures(1)
        load.order("x")
        assert load.process.wait(20) == 0
        trace.finish(statuses=(0, 1, 3))
        trace.wait_all_gone()
        assert trace.events()
        assert run("match", path).returncode in (0, 1)

    in_lanes(targets, program, tmp_path, one_round, pace=100000)


def test_execs(targets, program, tmp_path):
    """The new program has its own code, and none of ours; the next trace begins anew."""
    def one_round(load, path):
        trace = Trace(load.pid, path).wait_armed().wait_captures(1)
        load.order("e")
        assert load.process.stdout.readline() == b"ready\n"
        load.code = code_of(load.pid)
        trace.finish(statuses=(0, 1, 3))
        trace.wait_all_gone()
        load.check()
        assert trace.events()

    in_lanes(targets, program, tmp_path, one_round)


def test_stopped_and_continued_by_job_control(targets, program, tmp_path):
    load = Load(targets, program, "none")
    trace = Trace(load.pid, tmp_path / "t").wait_armed()
    for _ in range(ROUNDS):
        os.kill(load.pid, signal.SIGSTOP)
        os.kill(load.pid, signal.SIGCONT)
        assert load.moves()
    trace.interrupt()
    trace.wait_all_gone()
    load.check()


def test_threads_start_and_end_during_attach_and_detach(targets, program, tmp_path):
    def one_round(load, path):
        Trace(load.pid, path, seconds=0.1).finish()
        load.check()

    in_lanes(targets, program, tmp_path, one_round, mode="detached", pace=4000)


def test_sets_a_handler_for_sigtrap_during_the_trace(targets, program, tmp_path):
    load = Load(targets, program, "int3_late")
    trace = Trace(load.pid, tmp_path / "t").wait_armed()
    load.order("t")
    load.start_counting()
    load.wait_rounds(ROUNDS)
    errors = trace.interrupt()
    assert "SIGTRAP handler of its own" in errors
    load.wait_rounds(ROUNDS)
    load.check()


def test_patched_by_a_hook_library_during_the_trace(targets, program, tmp_path):
    """The hook takes the very bytes where our jump is; they are the hook's from then on."""
    load = Load(targets, program, "none")
    trace = Trace(load.pid, tmp_path / "t").wait_armed()
    load.order("p")
    assert load.ask("h") == ["hooked"]
    errors = trace.interrupt()
    assert "changed by somebody else" in errors
    trace.wait_all_gone()
    assert load.ask("h") == ["hooked"]
    before, after = (joined(code) for code in (load.code, code_of(load.pid)))
    changed = differences(before, after)
    assert 0 < len(changed) <= 5 and changed[-1] - changed[0] < 5
    load.code = code_of(load.pid)
    load.check()
    Trace(load.pid, tmp_path / "t2").wait_armed().interrupt()  # with the hook in place, which stays
    assert load.ask("h") == ["hooked"]
    load.check()


def joined(code):
    """Neighbours as one piece: a change of protection splits mappings."""
    pieces = {}
    for start in sorted(code):
        last = max(pieces, default=None)
        if last is not None and last + len(pieces[last]) == start:
            pieces[last] += code[start]
        else:
            pieces[start] = code[start]
    return pieces


@pytest.mark.parametrize("all_killed", [False, True])
def test_forked_children_live_on(targets, program, tmp_path, all_killed):
    """As the children of a prefork server do, for months: they lose the jumps with their parent, or by repair."""
    load = Load(targets, program, "none", 4000)
    trace = Trace(load.pid, tmp_path / "t").wait_armed().wait_captures(1)
    child, = map(int, load.ask("f"))
    if all_killed:
        for pid in (trace.process.pid, trace.supervisor, trace.gdb):
            os.kill(pid, signal.SIGKILL)
        trace.finish(statuses=(-signal.SIGKILL,))
        wait_until(lambda: runs_again(child) or os.kill(child, signal.SIGCONT), "the child to run on")
        wait_until(lambda: runs_again(load.pid) or os.kill(load.pid, signal.SIGCONT), "the target to run on")
        assert run("repair", "-p", load.pid).returncode == 0
    else:
        trace.interrupt()
    trace.wait_all_gone()
    load.check()
    assert differences(load.code, code_of(child)) == []
    assert load.ask("w") == ["lives"]


def test_error_in_the_plugin(targets, program, tmp_path):
    """A GDB whose Python fails at each hit: the trace says so, and the target is let go as ever."""
    gdb = tmp_path / "gdb"
    gdb.write_text('#!/bin/sh\nexec /usr/bin/env gdb -iex "python import sys; sys.path.insert(0, \'%s\')" '
                   '-iex "python import broken_hits" "$@"\n' % tmp_path)
    gdb.chmod(0o755)
    (tmp_path / "broken_hits.py").write_text("""
import gdb
gdb.selected_thread = lambda: (_ for _ in ()).throw(RuntimeError("broken on purpose"))
""")

    def one_round(load, path):
        errors = Trace(load.pid, path, seconds=0.2, env={"WHOMAP_GDB": str(gdb)}).finish()
        assert "hits could not be recorded" in errors and "broken on purpose" in errors
        load.check()

    in_lanes(targets, program, tmp_path, one_round)


def test_disk_full(targets, program, tmp_path):
    """The trace ends, the target is let go, what is there can be read."""
    folder = tmp_path / "small"
    folder.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", folder],
                                           capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount a small tmpfs")
    load = Load(targets, program, "none", 2000)
    try:
        for _ in range(ROUNDS):
            Trace(load.pid, folder / "t").finish(statuses=(8,))
            load.check()
            assert run("match", folder / "t").returncode in (0, 1)
    finally:
        subprocess.run(["umount", folder], check=True)


def test_repair_refuses_another_process(targets, program, tmp_path):
    """A state file of a process that had this pid before."""
    load = Load(targets, program, "none")
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    env = {"WHOMAP_STATE_DIR": str(folder)}
    assert run("trace", "-p", load.pid, "-d", 0.2, "-o", tmp_path / "t", env=env).returncode in (0, 1)
    state, = folder.glob("*.state")
    assert state.stat().st_mode & 0o777 == 0o600
    text = state.read_text()
    start_time = state.stem.split("-")[1]
    state.write_text(text.replace(f'"start_time":{start_time}', '"start_time":1'))
    refused = run("repair", "-p", load.pid, env=env)
    assert refused.returncode == 3 and "of another process" in refused.stderr
    state.write_text(text[:100])
    assert run("repair", "-p", load.pid, env=env).returncode == 6
    folder.chmod(0o755)
    assert run("repair", "-p", load.pid, env=env).returncode == 8
    load.check()


def test_never_beside_the_heap(targets, program, tmp_path):
    load = Load(targets, program, "none")
    trace = Trace(load.pid, tmp_path / "t").wait_armed()
    maps = open(f"/proc/{load.pid}/maps").read().splitlines()
    trace.interrupt()
    ranges = [tuple(int(part, 16) for part in line.split()[0].split("-")) for line in maps]
    with open(f"/proc/{load.pid}/mem", "rb") as memory:
        ours = []
        for line, (start, end) in zip(maps, ranges):
            fields = line.split()
            assert "wx" not in fields[1]
            if fields[1] == "r-xp" and len(fields) == 5:
                memory.seek(start)
                if memory.read(13) == b"whomap stub 1":
                    ours.append((start, end))
    heap, = (each for line, each in zip(maps, ranges) if line.endswith("[heap]"))
    assert ours
    for start, end in ours:
        assert not heap[1] <= start < heap[1] + (1 << 30)
