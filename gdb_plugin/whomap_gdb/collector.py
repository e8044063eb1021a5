# SPDX-License-Identifier: Apache-2.0
"""Starts the process that receives the captures when no whomap has started this GDB."""

import os
import subprocess


def start(command, collector_fd, plan_text, pass_fds=(), **options):
    """Hands it its end of the channel, and the plan on its standard input. Closes that end here."""
    try:
        process = subprocess.Popen(
            [*command, "--channel-fd", str(collector_fd), "--gdb", os.readlink("/proc/self/exe")],
            stdin=subprocess.PIPE, pass_fds=(collector_fd, *pass_fds), **options)
        with process.stdin as stdin:
            stdin.write(plan_text.encode("utf-8"))
        return process
    finally:
        os.close(collector_fd)


class QuietCollector:
    """One that leaves the terminal to GDB: out of reach of its Ctrl-C, and what it says is kept until asked for."""

    def __init__(self, command, collector_fd, plan_text, pass_fds):
        self.messages = os.memfd_create("whomap-messages", os.MFD_CLOEXEC)
        self.process = start(command, collector_fd, plan_text, pass_fds, start_new_session=True,
                             stdout=self.messages, stderr=self.messages)

    def wait(self):
        """It symbolises, which can take seconds. False when the user does not want to wait (Ctrl-C)."""
        while True:
            try:
                self.process.wait(timeout=0.1)
                return True
            except subprocess.TimeoutExpired:
                pass
            except KeyboardInterrupt:
                return False

    def said(self):
        return os.pread(self.messages, 1 << 20, 0).decode("utf-8", "replace").strip()
