# SPDX-License-Identifier: Apache-2.0
"""A running `whomap trace`, its GDB and its supervisor, for tests that end one of them."""

import os
import pathlib
import signal
import subprocess

from support import PATIENCE, WHOMAP, is_running, read_trace, wait_until

TARGETS = pathlib.Path(__file__).parent / "targets"


def compile_target(name, folder, *flags):
    program = folder / name
    subprocess.run(["gcc", "-O2", "-g", "-Wall", "-pthread", TARGETS / (name + ".c"), "-o", program, *flags], check=True)
    return program


def children_of(pid):
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            found += map(int, (task / "children").read_text().split())
        except OSError:
            pass  # that thread has ended
    return found


def command_line(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def is_gone(pid):
    """Ended; a zombie, which nobody may have waited for, counts too."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


class Trace:
    """`whomap trace -p PID`, watched from outside."""

    def __init__(self, pid, path, *options, engine="gdb", seconds=60, env=None, preexec_fn=None):
        self.engine = engine
        self.path = pathlib.Path(path)
        self.path.unlink(missing_ok=True)  # what it holds must be of this trace
        self.process = subprocess.Popen(
            [WHOMAP, "trace", "-p", str(pid), "--engine", engine, "-d", str(seconds), "--max-slowdown", "100", "-o", str(path),
             *options],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, **(env or {})}, preexec_fn=preexec_fn)
        self.gdb = self.supervisor = None

    def wait_armed(self):
        """Until the sites are watched; finds GDB and the supervisor."""
        def is_armed():
            assert self.process.poll() is None, self.process.communicate()
            try:
                return b'"type":"snapshot"' in self.path.read_bytes()
            except FileNotFoundError:
                return False
        wait_until(is_armed, "the trace to begin")
        for child in children_of(self.process.pid):
            line = command_line(child)
            if b"supervise" in line:
                self.supervisor = child
            elif line and line[0].endswith(b"gdb"):
                self.gdb = child
        assert self.supervisor and bool(self.gdb) == (self.engine == "gdb")
        return self

    def wait_captures(self, count):
        """Until the trace file shows that many calls; it is written out four times a second."""
        wait_until(lambda: self.path.read_bytes().count(b'"type":"event"') >= count, f"{count} captured calls")
        return self

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)
        return self.finish()

    def finish(self, *, statuses=(0, 1, 130)):
        """Waits for whomap to end; returns what it printed on standard error."""
        output, errors = self.process.communicate(timeout=2 * PATIENCE)
        assert self.process.returncode in statuses, (self.process.returncode, output, errors)
        return errors

    def wait_all_gone(self):
        """Nobody is left who holds or keeps the target, however the trace has ended."""
        for pid in filter(None, (self.gdb, self.supervisor)):
            wait_until(lambda: is_gone(pid), "GDB and the supervisor to end")

    def records(self):
        return read_trace(self.path)

    def events(self):
        return [record for record in self.records() if record.get("type") == "event"]


def runs_again(pid):
    """State and tracer of all threads, not only of the first one."""
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            if (task / "stat").read_text().rpartition(")")[2].split()[0] in "Tt":
                return False
        except OSError:
            pass  # that thread has ended
    return is_running(pid)
