# SPDX-License-Identifier: Apache-2.0
"""The commands of an interactive GDB. Their docstrings are what `help` prints."""

import argparse

import gdb

from . import by_hand, program


class Arguments(argparse.ArgumentParser):
    def __init__(self, name):
        super().__init__(prog=name, add_help=False, allow_abbrev=False)

    def error(self, message):
        raise gdb.GdbError("%s; see: help %s" % (message, self.prog))


def positive(kind):
    def convert(text):
        if kind(text) <= 0:
            raise ValueError
        return text
    convert.__name__ = "number above 0"
    return convert


class Whomap(gdb.Command):
    """Find the code that maps the memory of a growing process.

The process that GDB has attached to is watched at the instructions that enter the kernel for memory
(mmap, munmap, mremap, brk): at each the call, its result and the stack are recorded, and the process goes on.

    (gdb) whomap start
    (gdb) continue            and after a while Ctrl-C; or: continue &
    (gdb) whomap stop
    (gdb) whomap report

While it captures, code of whomap's is in the process ("stubs"); whomap stop takes it out. Should GDB be killed
or detach meanwhile, a process outside of GDB does that."""

    def __init__(self):
        super().__init__("whomap", gdb.COMMAND_RUNNING, prefix=True)


class Subcommand(gdb.Command):
    def __init__(self):
        super().__init__("whomap " + type(self).__name__.lower(), gdb.COMMAND_RUNNING)

    def invoke(self, text, from_tty):
        self.dont_repeat()
        self.run(gdb.string_to_argv(text))


class Plan(Subcommand):
    """Show which instructions of the process map memory, and how each would be watched.

Usage: whomap plan [--module REGEX] [--syscalls LIST] [--observe SEC]

Stops nothing and changes nothing. The options are those of `whomap plan --help` in a shell."""

    def run(self, arguments):
        pid = gdb.selected_inferior().pid
        if not pid:
            raise gdb.GdbError("no process: attach to one first (attach PID)")
        print(program.answer_of("plan", "-p", str(pid), *arguments), end="")


class Start(Subcommand):
    """Begin to capture the calls that map memory. The process must be stopped; continue it afterwards.

Usage: whomap start [-o FILE] [-d SEC] [--max-hits N] [--syscalls LIST] [--no-stubs] [--force]

  -o FILE          the trace file; else whomap-COMM-PID-TIME.trace in GDB's working folder
  -d SEC           end by itself after SEC seconds
  --max-hits N     end by itself after N calls
  --syscalls LIST  which calls; else mmap,munmap,mremap,brk
  --no-stubs       put no code into the process: breakpoints of GDB, slower, and fatal for it if GDB is killed
  --force          write over FILE

Before that, this GDB has to show on a throw-away process that it can do it. The process stops at an exec
(a catchpoint), where the capture ends."""

    options = Arguments("whomap start")
    options.add_argument("-o", "--output")
    options.add_argument("-d", "--duration", type=positive(float))
    options.add_argument("--max-hits", type=positive(int))
    options.add_argument("--syscalls")
    options.add_argument("--no-stubs", action="store_true")
    options.add_argument("--force", action="store_true")

    def run(self, arguments):
        options = self.options.parse_args(arguments)
        if captures():
            raise gdb.GdbError("a capture is going on already; see: whomap status")
        _State.capture = None
        capture = by_hand.Capture(options)
        capture.start()
        _State.capture = capture
        _State.trace = capture.path


class Status(Subcommand):
    """Say what is captured so far.

Usage: whomap status"""

    def run(self, arguments):
        Arguments("whomap status").parse_args(arguments)
        if captures():
            _State.capture.status()
        elif _State.trace:
            by_hand.say("no capture is going on; the last one is in %s" % _State.trace)
        else:
            by_hand.say("no capture is going on; whomap start begins one")


class Stop(Subcommand):
    """End the capture and put the original code of the process back.

Usage: whomap stop

A process that runs in the background (continue &) is stopped for that, and continued."""

    def run(self, arguments):
        Arguments("whomap stop").parse_args(arguments)
        if not captures():
            raise gdb.GdbError("no capture is going on")
        _State.capture.stop()


class Report(Subcommand):
    """Answer from the last capture which code maps the memory that grew: what `whomap match` prints.

Usage: whomap report [FILE] [--format text|json] [--signatures FILE]

FILE is the trace file of another capture."""

    def run(self, arguments):
        if captures():
            raise gdb.GdbError("the capture is going on: whomap stop ends it")
        if not arguments or arguments[0].startswith("-"):
            if _State.capture is not None:
                _State.capture.collector.wait()
            if not _State.trace:
                raise gdb.GdbError("nothing was captured yet: whomap start, or name a trace file")
            arguments = [_State.trace, *arguments]
        print(program.answer_of("match", *arguments), end="")


class _State:
    capture = None  # the one that goes on, or the last
    trace = None  # its file
    registered = False


def captures():
    return _State.capture is not None and not _State.capture.over


def register():
    """Once, however often the plugin is sourced: a capture that goes on is not forgotten."""
    if _State.registered:
        return
    for command in (Whomap, Plan, Start, Status, Stop, Report):
        command()
    _State.registered = True
