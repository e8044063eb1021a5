# SPDX-License-Identifier: Apache-2.0
"""Live tests: whomap on real processes. Targets say "ready" on their standard output; tests wait for
states, never for a time."""

import json
import os
import pathlib
import pty
import signal
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("WHOMAP_BUILD", ROOT / "build"))
WHOMAP = BUILD / "whomap"
EXAMPLES = BUILD / "examples"
PATIENCE = int(os.environ.get("PATIENCE", 60))  # seconds; a bound for what should take one


def wait_until(condition, what):
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        result = condition()
        if result:
            return result
        time.sleep(0.01)
    raise AssertionError("waited in vain for " + what)


def run(*arguments, env=None, timeout=PATIENCE * 2, cwd=None, preexec_fn=None):
    """whomap with these arguments; standard output and error as text."""
    return subprocess.run([str(WHOMAP), *map(str, arguments)], capture_output=True, text=True,
                          env={**os.environ, **(env or {})}, timeout=timeout, cwd=cwd,
                          stdin=subprocess.DEVNULL, preexec_fn=preexec_fn)


def run_on_tty(*arguments, env=None):
    """whomap with a terminal as standard output and error; returns (status, text)."""
    main, side = pty.openpty()
    process = subprocess.Popen([str(WHOMAP), *map(str, arguments)], stdin=side, stdout=side, stderr=side,
                               env={**os.environ, "TERM": "xterm", **(env or {})}, close_fds=True)
    os.close(side)
    text = b""
    while True:
        try:
            piece = os.read(main, 65536)
        except OSError:  # EIO: the other side is closed
            break
        if not piece:
            break
        text += piece
    os.close(main)
    return process.wait(PATIENCE), text.decode("utf-8", "replace")


def status_field(pid, name):
    with open(f"/proc/{pid}/status") as status:
        for line in status:
            if line.startswith(name + ":"):
                return line.split(":", 1)[1].strip()
    return None


def is_running(pid):
    """Alive, not stopped, not traced."""
    try:
        return status_field(pid, "State")[0] in "RSD" and status_field(pid, "TracerPid") == "0"
    except FileNotFoundError:
        return False


def gdb_of(pid):
    """The GDB that traces the process: for some moments before and after, it is whomap's supervisor."""
    def attached():
        tracer = int(status_field(pid, "TracerPid"))
        if not tracer:
            return None
        with open(f"/proc/{tracer}/comm") as name:
            return tracer if name.read().strip() == "gdb" else None
    return wait_until(attached, "GDB")


def code_of(pid):
    """{address: byte} is too much: the executable file mappings as {start: bytes}."""
    code = {}
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb") as memory:
        for line in maps:
            fields = line.split(maxsplit=5)
            if "x" not in fields[1] or len(fields) < 6 or fields[5].startswith("["):
                continue
            start, end = (int(part, 16) for part in fields[0].split("-"))
            try:
                memory.seek(start)
                code[start] = memory.read(end - start)
            except OSError:
                pass  # a library that was unloaded since maps was read
    return code


def differences(before, after):
    """Addresses at which the code differs, of what is mapped both times: a program may unload a library."""
    found = []
    for start, old in before.items():
        new = after.get(start, old)
        if old != new:
            found += [start + i for i in range(min(len(old), len(new))) if old[i] != new[i]]
    return found


class Targets:
    """Starts targets and ends them with the test."""

    def __init__(self):
        self.processes = []

    def start(self, *command, env=None, ready=True):
        process = subprocess.Popen([str(part) for part in command], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                   env={**os.environ, **(env or {})})
        self.processes.append(process)
        if ready:
            line = process.stdout.readline()
            assert line.strip() == b"ready", f"{command}: said {line!r}"
        return process

    def end(self):
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()
            for stream in (process.stdin, process.stdout):
                stream.close()


def report_of(process):
    """The JSON report on the standard output of a finished whomap."""
    assert process.stdout, process.stderr
    return json.loads(process.stdout)


def functions_of(stack):
    return [frame["function"] for frame in stack["frames"]]


def read_trace(path):
    """The whole lines: a writer that was killed leaves part of one at the end."""
    with open(path) as lines:
        return [json.loads(line) for line in lines if line.endswith("\n")]


def no_gdb_left_for(pid):
    """No GDB has this process in its script's plan or traces it."""
    return status_field(pid, "TracerPid") == "0"
