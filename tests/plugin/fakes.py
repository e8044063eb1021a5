# SPDX-License-Identifier: Apache-2.0
"""The plugin without GDB: a fake `gdb` module and a fake `_whomap`."""

import json
import os
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
            return self in gdb.all_breakpoints

        def delete(self):
            gdb.all_breakpoints.remove(self)

    gdb.all_breakpoints = []
    gdb.Breakpoint = Breakpoint
    gdb.breakpoints = lambda: tuple(gdb.all_breakpoints)

    class Command:
        registered = []

        def __init__(self, name, kind, prefix=False):
            Command.registered.append(name)

        def dont_repeat(self):
            pass

    class Registry(list):
        connect, disconnect = list.append, list.remove  # GDB's disconnect() too fails for what is not connected

    gdb.Command, gdb.COMMAND_RUNNING = Command, 1
    gdb.string_to_argv = str.split
    names = ("stop", "exited", "new_objfile", "before_prompt", "gdb_exiting")
    gdb.events = types.SimpleNamespace(**{name: Registry() for name in names})
    gdb.parameters = {"follow-fork-mode": "parent", "detach-on-fork": True, "non-stop": False}
    gdb.parameter = gdb.parameters.__getitem__
    gdb.running = False

    def execute(command, to_string=False):
        gdb.commands.append(command)
        if command == "catch exec":
            Breakpoint("exec", type=gdb.BP_CATCHPOINT)
        if command.startswith("quit"):
            raise Left(command)
        answer = gdb.answers.get(command.split()[0])
        return answer(command) if answer else ""

    gdb.execute = execute

    class Inferior:
        connection = types.SimpleNamespace(type="native")
        pid = property(lambda self: gdb.inferior_pid)

        def is_valid(self):
            return True

        def threads(self):
            return [types.SimpleNamespace(is_running=lambda: gdb.running)]

    gdb.inferior = Inferior()
    gdb.selected_inferior = lambda: gdb.inferior
    gdb.inferiors = lambda: (gdb.inferior,)
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
        self.has_stubs = False
        Tracer.last = self

    def __getattr__(self, name):
        def call(*arguments):
            self.calls.append((name, *arguments))
            return True
        return call

    def wait_for_ready(self):
        return Tracer.ready

    stubs = {"traps": [], "jumps": []}  # that install_stubs() puts in; an error to raise instead

    def install_stubs(self):
        self.calls.append(("install_stubs",))
        if isinstance(Tracer.stubs, Exception):
            raise Tracer.stubs
        self.has_stubs = True
        return {"fd": os.dup(2), "tsc_forbidden": False, "threads": [(7, 0x1000)]}

    def stub_state(self):
        return json.dumps(Tracer.stubs) if self.has_stubs else None

    def rest_of_plan(self):
        return Tracer.rest_of_plan_

    def remove_stubs(self):
        self.calls.append(("remove_stubs",))
        return {"restored": 1, "foreign": [], "failed": [], "handler_kept": False}

    def counts(self):
        return {"hits": 3, "captured": 2, "lost": 1}

    def wait_for_end(self):
        import threading
        threading.Event().wait()  # nobody asks: the target ends first
