#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""How long a process stands still when it is attached to: `gdb -p PID -batch` against `whomap trace --engine gdb`, whole, with
its end. Measured inside the target, as the longest gap in which one of its threads could not look at the clock."""

import glob
import os
import pathlib
import shutil
import subprocess
import tempfile
import threading
import time

from bench_support import Trace, compile_target, in_real_time, median, spread

ROUNDS = 7


class Watched:
    """A target that prints its gaps."""

    def __init__(self, *command, preexec_fn=None):
        self.process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, preexec_fn=preexec_fn)
        assert self.process.stdout.readline() == b"ready\n", command
        self.pid = self.process.pid
        self.gaps = []
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.gaps.append(tuple(map(int, line.split())))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def longest_ms(self, during):
        """The longest gap that ended while during() ran."""
        begin = time.monotonic_ns()
        during()
        end = time.monotonic_ns()
        time.sleep(0.05)  # for the last line to come
        return max((gap for at, gap in list(self.gaps) if begin <= at <= end), default=300_000) / 1e6


def stock_attach(pid):
    subprocess.run(["gdb", "-p", str(pid), "-batch"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def compare(what, folder, *command):
    stock, ours = [], []
    with Watched(*command) as target:
        trace_path = pathlib.Path(folder) / "trace"
        for _ in range(ROUNDS):
            stock.append(target.longest_ms(lambda: stock_attach(target.pid)))
            ours.append(target.longest_ms(lambda: Trace(target.pid, trace_path, seconds=0.5).finish()))
    print(f"attach_pause: {what}: gdb -p {spread(stock, 'ms')}, whomap {spread(ours, 'ms')}: "
          f"{median(ours) / median(stock):.3f} of it   (goal: 0.1)", flush=True)


def probe(what, goal_ms, folder, *command):
    """The engine that attaches nothing: its two stops, for the stubs to come and to go. The first trace is another matter: it reads
    the target's files for the first time. All threads of both run before those of other programs, where that is permitted."""
    longest, said = [], []
    with Watched(*command, preexec_fn=in_real_time) as target:
        trace_path = pathlib.Path(folder) / "trace"
        for _ in range(ROUNDS + 1):
            def one_trace():
                trace = Trace(target.pid, trace_path, engine="probe", seconds=0.3, preexec_fn=in_real_time)
                trace.finish()
                said.append(trace.records()[-1]["longest_stop_ms"])
            longest.append(target.longest_ms(one_trace))
    print(f"attach_pause: probe, {what}: longest gap {spread(longest[1:], 'ms')}, as whomap says {spread(said[1:], 'ms')}   "
          f"(goal: {goal_ms})", flush=True)


def measure_vfork(program, folder):
    longest = []
    with Watched(program, 0, 400) as target:
        for _ in range(ROUNDS):
            trace = Trace(target.pid, pathlib.Path(folder) / "trace").wait_armed()
            longest.append(target.longest_ms(lambda: time.sleep(1)))
            trace.interrupt()
        whole = target.longest_ms(lambda: Trace(target.pid, pathlib.Path(folder) / "trace", seconds=1).finish())
    print(f"attach_pause: other threads of a process with vfork children that live 400 ms: longest gap while traced "
          f"{spread(longest, 'ms')}   (goal: 5); with attach and detach {whole:.1f} ms", flush=True)


def main():
    with tempfile.TemporaryDirectory() as folder:
        program = compile_target("clock_gaps", folder)
        probe("a small program", 5, folder, program, 0, 0)
        probe("500 threads", 20, folder, program, 500, 0)
        compare("a small program", folder, program, 0, 0)
        llvm = next((path for path in sorted(glob.glob("/usr/lib/*/libLLVM*.so*")) if not os.path.islink(path)), None)
        if llvm:
            compare("libLLVM mapped", folder, program, 0, 0, llvm)
        else:
            print("attach_pause: no libLLVM here (package libllvm14)")
        node = shutil.which("node")
        if node:
            priority = ["chrt", "-f", "1"] if os.geteuid() == 0 else []
            compare("node", folder, *priority, node, pathlib.Path(__file__).parent / "targets" / "clock_gaps.js")
        else:
            print("attach_pause: no node here (package nodejs)")
        compare("500 threads", folder, program, 500, 0)
        measure_vfork(program, folder)


if __name__ == "__main__":
    main()
