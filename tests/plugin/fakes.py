# SPDX-License-Identifier: Apache-2.0
"""The plugin without GDB: a fake `gdb` module and a fake `_whomap`."""

import types


class GdbError(Exception):
    pass


class Left(BaseException):
    """The fake of `quit`: GDB would be gone."""


def fake_gdb():
    gdb = types.ModuleType("gdb")
    gdb.VERSION = "13.1"
    gdb.error = type("error", (RuntimeError,), {})
    gdb.GdbError = GdbError
    gdb.BP_BREAKPOINT, gdb.BP_CATCHPOINT = 1, 2
    gdb.commands = []
    gdb.inferior_pid = 0
    gdb.answers = {}  # command's first word -> function

    class Breakpoint:
        def __init__(self, spec, type=None, internal=False):
            self.spec, self.type, self.enabled, self.hit_count = spec, type, True, 0
            gdb.all_breakpoints.append(self)

        def is_valid(self):
            return True

    gdb.all_breakpoints = []
    gdb.Breakpoint = Breakpoint
    gdb.breakpoints = lambda: tuple(gdb.all_breakpoints)

    def execute(command, to_string=False):
        gdb.commands.append(command)
        if command.startswith("quit"):
            raise Left(command)
        answer = gdb.answers.get(command.split()[0])
        return answer(command) if answer else ""

    gdb.execute = execute
    gdb.selected_inferior = lambda: types.SimpleNamespace(pid=gdb.inferior_pid)
    gdb.selected_thread = lambda: types.SimpleNamespace(ptid=(7, 77, 0))
    gdb.signal = 0  # that the program stopped with

    def parse_and_eval(expression):
        assert expression == "$_siginfo.si_signo"
        return gdb.signal

    gdb.parse_and_eval = parse_and_eval
    gdb.post_event = lambda event: event()
    return gdb


class Tracer:
    """Records what the plugin tells the core."""

    ready = True

    def __init__(self, plan, channel_fd, stack_bytes):
        self.calls = []
        Tracer.last = self

    def __getattr__(self, name):
        def call(*arguments):
            self.calls.append((name, *arguments))
            return True
        return call

    def wait_for_ready(self):
        return Tracer.ready

    def wait_for_end(self):
        import threading
        threading.Event().wait()  # nobody asks: the target ends first
