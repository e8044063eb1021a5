# SPDX-License-Identifier: Apache-2.0
"""The process outside of GDB that takes stubs out of the target when GDB is gone before it has done so itself."""

import json
import os
import socket

from . import program

PATIENCE_SECONDS = 10


class Supervisor:
    """Stands by from now on; nobody else may change the process's code meanwhile. Raises RuntimeError."""

    def __init__(self, plan_text):
        self.channel, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        plan = os.memfd_create("whomap-plan", os.MFD_CLOEXEC)
        try:
            os.write(plan, plan_text.encode("utf-8"))
            program.start(["supervise", "--engine", "debugger", "--plan-fd", str(plan),
                           "--channel-fd", str(other.fileno())], pass_fds=(plan, other.fileno()))
        finally:
            other.close()
            os.close(plan)
        said = self.hear()
        if said.get("state") != "standing-by":
            self.channel.close()
            raise RuntimeError("; ".join(filter(None, (said.get("happened", "whomap supervise does not start"),
                                                       said.get("remedy")))))

    def hear(self):
        text = self.channel.recv(1 << 16)
        return json.loads(text) if text else {}

    def dismiss(self):
        """Nothing is left in the process, or GDB has let go of it: returns when the supervisor has done the rest."""
        self.leave_the_rest()
        self.channel.settimeout(PATIENCE_SECONDS)
        try:
            while self.hear():
                pass
        except OSError:
            pass  # it goes on by itself
        self.channel.close()

    def leave_the_rest(self):
        """Something is left, to be taken out as soon as GDB has let go of the process."""
        self.channel.shutdown(socket.SHUT_WR)
