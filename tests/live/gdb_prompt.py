# SPDX-License-Identifier: Apache-2.0
"""A user at GDB's prompt: GDB with commands on its standard input, as if typed."""

import os
import select
import signal
import subprocess
import time

from support import BUILD, PATIENCE, status_field, wait_until

PLUGIN = BUILD / "plugin" / "whomap.py"


class GdbPrompt:
    def __init__(self, *arguments, gdb="gdb", cwd=None, env=None):
        self.process = subprocess.Popen([gdb, "-nx", "-q", *map(str, arguments)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=cwd,
                                        env={**os.environ, **(env or {})}, start_new_session=True)
        self.pid = self.process.pid
        self.text = ""
        self.seen = 0
        self.asked = 0
        self.do("set confirm off")

    def send(self, command):
        self.process.stdin.write((command + "\n").encode())
        self.process.stdin.flush()

    def read(self, wanted):
        """Until `wanted` comes; returns what came since the last time."""
        deadline = time.monotonic() + 2 * PATIENCE
        while wanted not in self.text[self.seen:]:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))
            piece = os.read(self.process.stdout.fileno(), 65536) if ready else b""
            assert piece, f"GDB did not say {wanted!r}: {self.text[self.seen:]}"
            self.text += piece.decode("utf-8", "replace")
        begin, self.seen = self.seen, self.text.index(wanted, self.seen) + len(wanted)
        return self.text[begin:self.seen]

    def do(self, command):
        """One command; what GDB printed for it."""
        self.asked += 1
        mark = f"--done {self.asked}--"
        self.send(command)
        self.send(f'echo {mark}\\n')
        return self.read(mark)[:-len(mark)].replace("(gdb) ", "")

    def load(self):
        return self.do(f"source {PLUGIN}")

    def interrupt(self):
        """Ctrl-C while the process runs in the foreground; back at the prompt."""
        self.process.send_signal(signal.SIGINT)

    def wait_running(self, pid):
        wait_until(lambda: status_field(pid, "State")[0] != "t", "the process to run under GDB")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def quit(self):
        self.send("quit")
        self.process.stdin.close()
        self.process.stdout.read()
        return self.process.wait(PATIENCE)

    def end(self):
        if self.process.poll() is None:
            self.kill()
        for stream in (self.process.stdin, self.process.stdout):
            if not stream.closed:
                try:
                    stream.close()
                except BrokenPipeError:
                    pass
