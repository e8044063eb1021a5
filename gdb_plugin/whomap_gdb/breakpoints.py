# SPDX-License-Identifier: Apache-2.0
"""Breakpoints at the planned addresses."""

import gdb


class HitFailures:
    """Errors raised while a hit was handled: counted, the first one kept."""

    def __init__(self):
        self.count = 0
        self.first = None

    def note(self, error):
        self.count += 1
        if self.first is None:
            self.first = "%s: %s" % (type(error).__name__, error)


class SiteBreakpoint(gdb.Breakpoint):
    """Calls `on_hit(site, tid)` and never stops the program: with stop() returning False only the
    thread that hit it pauses."""

    def __init__(self, address, site, on_hit, failures):
        super().__init__("*%#x" % address, type=gdb.BP_BREAKPOINT, internal=True)
        self.silent = True
        self._site = site
        self._on_hit = on_hit
        self._failures = failures

    def stop(self):
        try:
            self._on_hit(self._site, gdb.selected_thread().ptid[1])
        except BaseException as error:  # an exception that left stop() would stop the target
            self._failures.note(error)
        return False


def set_planned(plan, tracer, failures):
    """Sets what the plan asks for and returns the breakpoints."""
    breakpoints = []
    for site in plan["sites"]:
        watch = site["watch"]
        if watch == "none":
            continue
        if watch == "paired-breakpoints":
            breakpoints.append(SiteBreakpoint(
                int(site["syscall_address"], 16), site["id"], tracer.at_syscall, failures))
        breakpoints.append(SiteBreakpoint(
            int(site["return_address"], 16), site["id"], tracer.at_return, failures))
    return breakpoints


def set_traps(stubs, tracer, failures):
    """Breakpoints on the int3 that are in the stubs; the tracer knows each by its place in the list."""
    return [SiteBreakpoint(int(trap["address"], 16), index, tracer.at_trap, failures)
            for index, trap in enumerate(stubs["traps"])]
