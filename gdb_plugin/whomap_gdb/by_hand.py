# SPDX-License-Identifier: Apache-2.0
"""A capture in an interactive GDB: the user has attached, and continues, interrupts and detaches as ever.

Stubs go in and out while GDB has stopped the process, by GDB's own thread: it is the tracer, and nobody else can be.
A supervisor outside takes them out if GDB goes away before."""

import json
import os
import time

import gdb
from _whomap import Tracer, default_trace_name, make_channel

from . import breakpoints, collector, program, supervisor
from .inferior import check_inferior, is_running
from .session import start_thread

STACK_BYTES = 32768  # copied per capture until the collector asks for another size
NO_END_SECONDS = 7 * 24 * 3600  # the longest that a trace can be


def say(text):
    print("whomap: " + text)


class Capture:
    """From start() to the moment when `over` is set; `options` are those of `whomap start`."""

    def __init__(self, options):
        self.options = options
        self.inferior = gdb.selected_inferior()
        check_inferior(self.inferior)
        self.pid = self.inferior.pid
        self.breakpoints = []
        self.exec_catchpoint = None
        self.failures = breakpoints.HitFailures()
        self.tracer = self.collector = self.supervisor = None
        self.over = self.ending = self.continue_then = False
        self.notes, self.connected = [], []

    # -- begin

    def start(self):
        plan_text = self.make_plan()
        stubs = self.may_use_stubs()
        tracer_fd, collector_fd = make_channel()
        self.tracer = Tracer(plan_text, tracer_fd, STACK_BYTES)
        try:
            ring = self.put_stubs_in(plan_text) if stubs else None
            self.begin_collecting(plan_text, ring, collector_fd)
            self.watch()
        except (gdb.error, OSError, RuntimeError) as error:
            self.take_out()
            self.end_capture()
            raise gdb.GdbError("nothing is captured: %s" % str(error).strip())
        self.listen()
        self.tracer.armed()
        self.began = time.monotonic()
        self.describe()

    def make_plan(self):
        wanted = ["--syscalls", self.options.syscalls] if self.options.syscalls else []
        text = program.answer_of("plan", "-p", str(self.pid), "--format", "json", *wanted)
        self.plan = json.loads(text)
        self.path = os.path.abspath(self.options.output or default_trace_name(text))
        return text

    def may_use_stubs(self):
        """This very GDB has to do it with a throw-away process first; another instance of it."""
        if self.options.no_stubs:
            return False
        output, errors = program.run("prove-gdb", "--gdb", os.readlink("/proc/self/exe"))
        if not output:
            self.notes.append("no stubs: " + errors.strip())
        return bool(output)

    def put_stubs_in(self, plan_text):
        """What the collector needs to read what they record; None when there are none."""
        self.supervisor = supervisor.Supervisor(plan_text)
        try:
            ring = self.tracer.install_stubs()
        except RuntimeError as error:
            self.notes.append("no stubs: %s" % error)
            self.dismiss_supervisor()
            return None
        self.forget_cached_code()
        self.plan = json.loads(self.tracer.rest_of_plan())
        return ring

    def begin_collecting(self, plan_text, ring, collector_fd):
        command = [program.path(), "collect", "--by-hand", "--output", self.path, "--max-slowdown", "100",
                   "--duration", str(self.options.duration or NO_END_SECONDS)]
        if self.options.max_hits:
            command += ["--max-hits", self.options.max_hits]
        if self.options.force:
            command.append("--force")
        inherited = []
        if ring:
            inherited.append(ring.pop("fd"))
            command += ["--ring-fd", str(inherited[0])]
            plan_text = json.dumps({**json.loads(plan_text), "ring": ring})
        try:
            self.collector = collector.QuietCollector(command, collector_fd, plan_text, inherited)
        finally:
            for each in inherited:
                os.close(each)
        if not self.tracer.wait_for_ready():
            self.collector.wait()
            raise RuntimeError(self.collector.said().removeprefix("whomap: ") or "whomap collect does not start")

    def watch(self):
        self.tracer.remember_code()
        self.tracer.arm_traps()
        self.breakpoints = breakpoints.set_planned(self.plan, self.tracer, self.failures)
        self.ordinary = sum(site["watch"] != "none" for site in self.plan["sites"])
        state = self.tracer.stub_state()
        self.stubs = json.loads(state) if state else {"traps": [], "jumps": []}
        self.breakpoints += breakpoints.set_traps(self.stubs, self.tracer, self.failures)
        # The addresses mean nothing in another program, and GDB would write its breakpoints there.
        before = set(gdb.breakpoints())
        gdb.execute("catch exec", to_string=True)
        self.exec_catchpoint = next(each for each in gdb.breakpoints() if each not in before)

    def describe(self):
        for note in self.notes:
            say(note)
        say("captures process %d into %s: %d sites by stubs, %d by breakpoints of GDB; now continue, and later: whomap stop"
            % (self.pid, self.path, len(self.stubs["jumps"]), self.ordinary))
        if self.ordinary:
            say("if this GDB is killed while breakpoints of it are in, the process dies of the next one that it reaches")

    # -- while it runs

    def events(self):
        return [(gdb.events.stop, self.on_stop), (gdb.events.exited, self.on_exited),
                (gdb.events.new_objfile, self.on_new_objfile), (gdb.events.before_prompt, self.on_prompt),
                (gdb.events.gdb_exiting, self.on_gdb_exiting)]

    def listen(self):
        self.connected = self.events()
        for registry, handler in self.connected:
            registry.connect(handler)
        start_thread(self.wait_for_end)

    def wait_for_end(self):
        self.tracer.wait_for_end()
        if not self.over:
            self.tracer.disarm_traps()
            gdb.post_event(self.asked_to_end)

    def asked_to_end(self):
        """By the collector: time or hits are up, or the file cannot be written. The code goes back at the next stop of
        the process, which is the user's to make."""
        if self.over or self.ending:
            return
        self.ending = True
        for each in self.breakpoints:
            each.enabled = False
        self.tracer.finished()
        if is_running(self.inferior):
            say("the capture has ended; the code is put back when the process stops next, or by: whomap stop")
        else:
            self.complete()

    def is_ours(self):
        return self.inferior.is_valid() and self.inferior.pid == self.pid

    def on_stop(self, event):
        hit = getattr(event, "breakpoints", ())
        if self.exec_catchpoint is not None and self.exec_catchpoint in hit:
            say("the process is another program now (exec); the capture ends")
            self.abandon()
        elif self.ending and not is_running(self.inferior):
            # Where it has stopped for a reason of the user's it stays stopped.
            self.continue_then &= not hit and getattr(event, "stop_signal", "SIGINT") in ("SIGINT", "0")
            gdb.post_event(self.complete)

    def on_new_objfile(self, _event):
        """At an exec GDB reads the new program before it would write breakpoints into it; the stop comes later."""
        if not self.tracer.runs_same_program():
            self.delete(self.breakpoints)

    def on_exited(self, event):
        if event.inferior == self.inferior:
            say("the process has ended, or GDB has let go of it; the capture ends")
            self.abandon()

    def on_prompt(self):
        if not self.is_ours():
            say("GDB has let go of the process; the capture ends")
            self.abandon()

    def on_gdb_exiting(self, _event):
        """GDB detaches next; then the supervisor takes the stubs out."""
        self.over = True
        self.tracer.disarm_traps()
        self.tracer.finished()
        say("%s is being finished, and the code put back, when GDB is gone" % self.path)

    def status(self):
        counts = self.tracer.counts()
        # Those that must not meet an int3, most of all munmap, are the collector's to count.
        say("captures process %d into %s for %.0f s: %d calls seen by GDB, %d lost; %d sites by stubs, %d by breakpoints%s"
            % (self.pid, self.path, time.monotonic() - self.began, counts["captured"], counts["lost"],
               len(self.stubs["jumps"]), self.ordinary, "; it is ending" if self.ending else ""))
        if self.failures.count:
            say("%d hits could not be recorded: %s" % (self.failures.count, self.failures.first))

    # -- end

    def stop(self):
        if not is_running(self.inferior):
            self.complete()
            return
        # Code is put back with all threads stopped. Until then the stubs let every call pass.
        self.ending = self.continue_then = True
        self.tracer.disarm_traps()
        gdb.execute("interrupt -a" if gdb.parameter("non-stop") else "interrupt", to_string=True)
        say("stops the process for a moment")

    def complete(self):
        """All threads stand still."""
        if self.over:
            return
        self.take_out()
        self.end_capture()
        if self.continue_then:
            gdb.execute("continue -a &" if gdb.parameter("non-stop") else "continue &", to_string=True)
            start_thread(lambda: self.collector.wait() and gdb.post_event(self.tell))
        else:
            self.wait_and_tell()

    def take_out(self):
        """Puts the code back, or leaves that to the supervisor, which has to wait until GDB detaches."""
        self.delete_breakpoints()
        self.tracer.disarm_traps()
        try:
            removed = self.tracer.remove_stubs()
        except RuntimeError as error:
            say("the code is not back yet (%s); it is put back when GDB detaches" % error)
            self.leave_to_supervisor()
            return
        self.forget_cached_code()
        if removed.get("handler_left"):
            say("no thread was fit for a call: the SIGTRAP handler stays in the process until GDB detaches")
            self.leave_to_supervisor()
        else:
            self.dismiss_supervisor()
        for address in removed.get("foreign", ()):
            say("the code at %#x was changed by somebody else during the capture; it was left alone" % address)
        for address in removed.get("failed", ()):
            say("the code at %#x could not be put back; after detaching: whomap repair -p %d" % (address, self.pid))
        if removed.get("handler_kept"):
            say("the process has set a SIGTRAP handler of its own during the capture; it was left alone")

    def leave_to_supervisor(self):
        if self.supervisor is not None:
            self.supervisor.leave_the_rest()
            self.supervisor = None

    def dismiss_supervisor(self):
        if self.supervisor is not None:
            self.supervisor.dismiss()
            self.supervisor = None

    def delete_breakpoints(self):
        self.delete([*self.breakpoints, *filter(None, [self.exec_catchpoint])])

    @staticmethod
    def delete(breakpoints_):
        for each in breakpoints_:
            if each.is_valid():
                each.delete()

    def abandon(self):
        """The process is gone, or another program, or GDB's no more: what is left to do is the supervisor's."""
        if not self.over:
            self.end_capture()
            self.dismiss_supervisor()
            self.wait_and_tell()

    def end_capture(self):
        self.over = True
        while self.connected:
            registry, handler = self.connected.pop()
            registry.disconnect(handler)
        self.delete_breakpoints()
        self.tracer.finished()

    def wait_and_tell(self):
        if self.collector.wait():
            self.tell()
        else:
            say("%s is being finished in the background" % self.path)

    def tell(self):
        print(self.collector.said())

    @staticmethod
    def forget_cached_code():
        """The code was changed behind GDB's back."""
        gdb.execute("maintenance flush dcache", to_string=True)
