# SPDX-License-Identifier: Apache-2.0
"""Targets of the benchmarks and what is measured with them."""

import os
import pathlib
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "live"))

from stub_support import Trace  # noqa: E402,F401
from support import wait_until  # noqa: E402,F401

TARGETS = pathlib.Path(__file__).parent / "targets"


def compile_target(name, folder, *flags):
    program = pathlib.Path(folder) / name
    subprocess.run(["gcc", "-O2", "-g", "-pthread", TARGETS / (name + ".c"), "-o", program, *flags], check=True)
    return program


class Target:
    """A program that says "ready" and answers lines; ended with the block."""

    def __init__(self, *command, preexec_fn=None):
        self.process = subprocess.Popen([str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        preexec_fn=preexec_fn)
        assert self.process.stdout.readline() == b"ready\n", command
        self.pid = self.process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def ask(self):
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        return list(map(int, self.process.stdout.readline().split()))


def in_real_time():
    """For preexec_fn: other programs on the machine then leave the process alone. Nothing where that is not permitted. What runs so
    must not do it for long."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except PermissionError:
        pass


def median(values):
    return statistics.median(values)


def spread(values, unit):
    return f"{median(values):,.1f} {unit} ({min(values):,.1f}..{max(values):,.1f})"
