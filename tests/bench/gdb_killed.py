#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""How often does a process survive that GDB is killed with -9 while 8 threads hit the stubs as fast as they can?

gdb_killed.py [ROUNDS [KIND...]]: kinds are those of tests/live/targets/under_load.c; prints one line for each. A target that has
died is replaced by a new one."""

import collections
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "live"))

from stub_support import Trace, compile_target, runs_again  # noqa: E402
from support import code_of, differences, wait_until  # noqa: E402

KINDS = {
    "none": "8 threads at full rate",
    "int3": "the same, with a SIGTRAP handler of its own that is used",
    "blocked": "the same, all threads block all signals",
    "spawn": "a posix_spawn every 2 ms beside them",
    "system": "a system() every 2 ms beside them",
    "detached": "threads that start and end beside them",
}


def start(program, kind):
    process = subprocess.Popen([program, kind, "0"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    return process


def counts(process):
    process.stdin.write(b"r")
    process.stdin.flush()
    return list(map(int, process.stdout.readline().split()))


def one_round(process, code, path):
    """What became of the target: "" when all is well."""
    trace = Trace(process.pid, path).wait_armed().wait_captures(100)
    os.kill(trace.gdb, signal.SIGKILL)
    trace.process.communicate()
    trace.wait_all_gone()
    if process.poll() is not None:
        return f"status {process.returncode}"
    try:
        wait_until(lambda: process.poll() is not None or runs_again(process.pid), "the target to run on")
    except AssertionError:
        return "stopped"
    if process.poll() is not None:
        return f"status {process.returncode}"
    if differences(code, code_of(process.pid)):
        return "code differs"
    rounds, good, failures, calls = counts(process)
    return "failed checks" if failures else "no calls" if not calls else ""


def survival(kind, rounds, folder):
    program = compile_target("under_load", folder)
    fates = collections.Counter()
    process = start(program, kind)
    code = code_of(process.pid)
    for _ in range(rounds):
        fate = one_round(process, code, folder / "trace")
        fates[fate or "survived"] += 1
        if fate:
            process.kill()
            process.wait()
            process = start(program, kind)
            code = code_of(process.pid)
    process.kill()
    process.wait()
    return fates


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    for kind in sys.argv[2:] or KINDS:
        with tempfile.TemporaryDirectory() as folder:
            fates = survival(kind, rounds, pathlib.Path(folder))
        others = ", ".join(f"{count} {fate}" for fate, count in fates.items() if fate != "survived")
        print(f"gdb_killed: {fates['survived']} of {rounds} survived{' (' + others + ')' if others else ''}: {KINDS.get(kind, kind)}",
              flush=True)


if __name__ == "__main__":
    main()
