# SPDX-License-Identifier: Apache-2.0
"""One trace: attach, watch, let go."""

import json
import os
import signal
import threading
import time

import gdb
from _whomap import Tracer, make_channel

from . import breakpoints, collector
from .status import StatusFile

# After the breakpoints are out, threads that had already hit one, and children forked with them in their code,
# are still reported to GDB. It has to see these reports, and to believe that the breakpoints are in,
# before it lets go; or a thread would go on behind half an instruction, and a child would keep them.
SETTLE_SECONDS = 0.1
VFORK_PATIENCE_SECONDS = 5
CALLS_LIKE_VFORK = {b"56", b"58", b"435"}  # clone, vfork, clone3 of x86-64
ORDERLY_END_SIGNALS = {signal.SIGTERM, signal.SIGHUP}


def start_time(pid):
    """Field 22 of /proc/PID/stat (man 5 proc_pid_stat), None when there is no such process."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as stat:
            return int(stat.read().rpartition(b")")[2].split()[22 - 3])
    except (OSError, IndexError, ValueError):
        return None


def waits_for_vfork_child(pid):
    """Does a thread sleep where no tracer can stop it, until a child is done? The others would stand still with it.
    Threads that wait for the lock of the address space sleep so too, but not for long."""
    for task in os.scandir("/proc/%d/task" % pid):
        try:
            with open(task.path + "/stat", "rb") as stat:
                if stat.read().rpartition(b")")[2].split()[0] != b"D":
                    continue
            with open(task.path + "/syscall", "rb") as call:
                if call.read().split()[0] in CALLS_LIKE_VFORK:
                    return True
        except OSError:
            pass  # it has ended
    return False


def let_vforks_end(pid):
    """Waits a while for a moment in which all threads can be stopped."""
    deadline = time.monotonic() + VFORK_PATIENCE_SECONDS
    try:
        while waits_for_vfork_child(pid) and time.monotonic() < deadline:
            time.sleep(0.002)
    except OSError:
        pass  # the process has ended, which the next step will find


def start_thread(target):
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are for GDB
    threading.Thread(target=target, daemon=True).start()
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


class Session:
    """`configuration`: plan (as `whomap plan --format json`), stack_bytes, and either channel_fd and
    status_fd (inherited from whomap) or collector (a command line to start). stubs: the state of stubs that are in
    the target already, for their sites no breakpoint is set."""

    def __init__(self, configuration):
        self.plan = configuration["plan"]
        self.pid = self.plan["target"]["pid"]
        self.stubs = configuration.get("stubs")
        self.stack_bytes = configuration["stack_bytes"]
        self.channel_fd = configuration.get("channel_fd")
        self.collector = configuration.get("collector")
        self.status = StatusFile(configuration.get("status_fd"))
        self.failures = breakpoints.HitFailures()
        self.breakpoints = []
        self.tracer = None
        self.ended = False
        self.resumed = False
        self.busy_since = None

    def run(self):
        # Ctrl-C at the terminal reaches the collector too, and that ends the trace; GDB itself would send the
        # SIGINT on to the target. TERM would make it quit in the middle of whatever it does: breakpoints
        # that a thread has just hit are then lost, and the target dies of them (seen in most rounds).
        # Blocking is not enough: GDB unblocks them while it waits for threads to stop.
        for each in (signal.SIGINT, *ORDERLY_END_SIGNALS):
            signal.signal(each, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, *ORDERLY_END_SIGNALS})
        try:
            self.connect()
            self.attach()
            self.arm()
        except (gdb.error, OSError, RuntimeError) as error:
            self.status.write("failed", error=str(error).strip())
            print("whomap: %s" % str(error).strip())
            self.let_go("failed")
        self.watch_for_end()
        self.run_target()

    def connect(self):
        # GDB would end a process that it is attached to before it attaches again.
        if gdb.selected_inferior().pid:
            raise RuntimeError("this GDB has process %d already: start it without -p, or detach first" %
                               gdb.selected_inferior().pid)
        plan_text = json.dumps(self.plan)
        if self.channel_fd is None:
            self.channel_fd, collector_fd = make_channel()
            collector.start(self.collector, collector_fd, plan_text)
        tracer = Tracer(plan_text, self.channel_fd, self.stack_bytes)
        if not tracer.wait_for_ready():
            raise RuntimeError("whomap is not there to receive the captures")
        if self.stubs:
            tracer.use_stubs(json.dumps(self.stubs))
        elif self.collector and tracer.find_stubs():  # the collector has put them in before it was ready
            self.stubs = json.loads(tracer.stub_state())
            self.plan = json.loads(tracer.rest_of_plan())
        self.tracer = tracer

    def attach(self):
        expected = self.plan["target"]["start_time"]
        if start_time(self.pid) != expected:
            raise RuntimeError("process %d is not the one the plan was made for" % self.pid)
        let_vforks_end(self.pid)
        self.stopped_since = time.monotonic_ns()
        gdb.execute("attach %d" % self.pid, to_string=True)
        if gdb.selected_inferior().pid != self.pid:
            raise RuntimeError("GDB could not attach to process %d" % self.pid)
        self.status.write("attached")
        if start_time(self.pid) != expected:
            raise RuntimeError("process %d was replaced by another one" % self.pid)

    def arm(self):
        self.tracer.remember_code()
        # The int3 comes first: GDB then takes each for a permanent breakpoint, that it has neither to write nor to
        # step over.
        self.tracer.arm_traps()
        self.tracer.leave_vforks_alone()
        self.breakpoints = breakpoints.set_planned(self.plan, self.tracer, self.failures)
        if self.stubs:
            self.breakpoints += breakpoints.set_traps(self.stubs, self.tracer, self.failures)
        gdb.execute("catch exec", to_string=True)  # its addresses mean nothing in another program
        self.tracer.stopped_for(time.monotonic_ns() - self.stopped_since)
        self.busy_since = time.process_time_ns()
        self.tracer.armed()
        self.status.write("armed", breakpoints=len(self.breakpoints))

    def resume_command(self):
        # A SIGTRAP that stops the target is none of GDB's breakpoints: the program raised it, with an int3 of
        # its own or kill(), and gets it. (`handle SIGTRAP pass` is no way: GDB passes its own traps on then.)
        try:
            if self.resumed and int(gdb.parse_and_eval("$_siginfo.si_signo")) == signal.SIGTRAP:
                return "signal SIGTRAP"
        except gdb.error:
            pass  # stopped by something that is no signal
        self.resumed = True
        return "continue"

    def run_target(self):
        while True:
            try:
                gdb.execute(self.resume_command(), to_string=True)
            except gdb.error as error:
                if gdb.selected_inferior().pid:
                    self.status.write("failed", error=str(error).strip())
                self.let_go("stopped")
            if not gdb.selected_inferior().pid:
                self.let_go("exited")
            if self.has_execed():
                self.let_go("exec")

    def has_execed(self):
        for breakpoint_ in gdb.breakpoints() or ():
            if breakpoint_.type == gdb.BP_CATCHPOINT and breakpoint_.hit_count:
                return True
        return False

    def watch_for_end(self):
        for waiting in (self.wait_and_end, self.wait_for_signal):
            start_thread(waiting)

    def wait_and_end(self):
        self.tracer.wait_for_end()
        self.end_soon("asked")

    def wait_for_signal(self):
        while signal.sigwait({signal.SIGINT, *ORDERLY_END_SIGNALS}) == signal.SIGINT:
            pass  # the collector's to act on
        self.end_soon("signal")

    def end_soon(self, reason):
        self.tracer.take_out_breakpoints()
        self.tracer.disarm_traps()
        time.sleep(SETTLE_SECONDS)
        let_vforks_end(self.pid)
        gdb.post_event(lambda: self.let_go(reason))

    def disable_breakpoints(self):
        for each in self.breakpoints:
            if each.is_valid():
                each.enabled = False

    def let_go(self, reason):
        """Detaches, says so, and ends GDB: nothing comes back from here."""
        if self.ended:
            return
        self.ended = True
        error = None
        if self.busy_since is not None:
            self.tracer.busy_for(time.process_time_ns() - self.busy_since)
        try:
            if self.tracer is not None:
                self.tracer.take_out_breakpoints()
                self.tracer.disarm_traps()
            self.disable_breakpoints()
            if self.tracer is not None:
                self.tracer.undo_foreign_writes()
                self.tracer.disarm_traps()
            if gdb.selected_inferior().pid:
                begin = time.monotonic_ns()
                gdb.execute("detach", to_string=True)
                if self.tracer is not None:
                    self.tracer.stopped_for(time.monotonic_ns() - begin)
        except gdb.error as problem:
            error = str(problem).strip()
        if self.tracer is not None:
            self.tracer.finished()
            if self.collector:
                self.tracer.wait_for_end()  # until the collector has printed its answer and left
        self.status.write("ended", reason=reason, error=error, hit_errors=self.failures.count,
                          first_hit_error=self.failures.first)
        gdb.execute("quit %d" % (1 if reason == "failed" or error else 0))
