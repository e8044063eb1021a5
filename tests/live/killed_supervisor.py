# SPDX-License-Identifier: Apache-2.0
"""Kills `whomap supervise` with -9 while it changes a target: at a chance moment, or right before one of its system calls.
Between two system calls it changes nothing, so that all of the second kind together are every moment."""

import os
import random
import shutil
import signal
import subprocess
import time

from stub_support import command_line, runs_again
from support import PATIENCE, WHOMAP, code_of, differences, run, wait_until

# What changes the target or lets it go on.
CHANGES = "ptrace,pwrite64,write,process_vm_writev"


def tracer_of(pid):
    with open(f"/proc/{pid}/status") as status:
        text = status.read()
    return int(text[text.index("TracerPid:") + 10:].split(maxsplit=1)[0])


def start_trace(load, path, *, engine, seconds, prefix=()):
    path.unlink(missing_ok=True)
    return subprocess.Popen([*prefix, WHOMAP, "trace", "-p", str(load.pid), "--engine", engine, "-d", str(seconds), "-o", str(path)],
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_supervisor_in(load, trace):
    """Until it has stopped a thread of the target; its pid, or None when the trace has ended before. Looks without a pause."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and trace.poll() is None:
        tracer = tracer_of(load.pid)
        if tracer and b"supervise" in command_line(tracer):
            return tracer
    return None


def kill_at_random(load, path, *, engine="probe", removal=False, within_us=2000):
    """Killed up to `within_us` after it has stopped the target for the installation or the removal. True when it was killed
    while it had the target stopped."""
    trace = start_trace(load, path, engine=engine, seconds=0.3 if removal else 0.1)
    supervisor = wait_for_supervisor_in(load, trace)
    if removal and supervisor:
        while tracer_of(load.pid) == supervisor:
            pass
        supervisor = wait_for_supervisor_in(load, trace)
    aimed = False
    if supervisor:
        until = time.monotonic() + random.uniform(0, within_us) * 1e-6
        while time.monotonic() < until:
            pass
        aimed = tracer_of(load.pid) == supervisor
        try:
            os.kill(supervisor, signal.SIGKILL)
        except ProcessLookupError:
            aimed = False
    trace.communicate(timeout=2 * PATIENCE)
    after_death(load)
    return aimed


def kill_before_call(load, path, number):
    """strace kills every process of the trace at the entry of its call `number` of CHANGES: the supervisor, and whomap itself,
    when it makes as many in its place. True when that came to pass. With the probe engine: GDB does not work below strace."""
    if shutil.which("strace") is None:
        raise RuntimeError("strace is needed")
    log = path.with_suffix(".strace")
    trace = start_trace(load, path, engine="probe", seconds=0.05,
                        prefix=("strace", "-f", "-o", log, "-e", f"trace={CHANGES}",
                                "-e", f"inject={CHANGES}:signal=KILL:when={number}"))
    trace.communicate(timeout=2 * PATIENCE)  # strace ends after all that it follows
    after_death(load)
    return trace.returncode == -signal.SIGKILL or "killed by SIGKILL" in log.read_text(errors="replace")


def after_death(load):
    """The target lives, and repair finds it in a state that it can put right."""
    assert load.process.poll() is None, f"the target has ended: {load.process.returncode}"
    wait_until(lambda: load.process.poll() is not None or runs_again(load.pid), "the target to run on")
    assert load.process.poll() is None, f"the target has ended: {load.process.returncode}"
    assert load.moves()
    if differences(load.code, code_of(load.pid)):
        repaired = run("repair", "-p", load.pid)
        assert repaired.returncode == 0, repaired
    load.check()
