# SPDX-License-Identifier: Apache-2.0
"""The process that an interactive GDB debugs."""

import gdb


def is_running(inferior):
    return any(thread.is_running() for thread in inferior.threads())


def check_inferior(inferior):
    """Raises when a capture cannot begin now."""
    if not inferior.pid or not inferior.threads():
        raise gdb.GdbError("no process: attach to one first (attach PID)")
    if inferior.connection is None or inferior.connection.type != "native":
        raise gdb.GdbError("whomap captures processes of this machine that GDB debugs itself, not remote ones or cores")
    if is_running(inferior):
        raise gdb.GdbError("the process is running: interrupt it first, start, and continue")
    if any(each.pid for each in gdb.inferiors() if each != inferior):
        raise gdb.GdbError("GDB debugs more than one process: leave one of them")
    if gdb.parameter("follow-fork-mode") != "parent" or not gdb.parameter("detach-on-fork"):
        raise gdb.GdbError("GDB would hold on to forked children: set follow-fork-mode parent, set detach-on-fork on")
