# SPDX-License-Identifier: Apache-2.0
import json
import os
import signal

import pytest

from fakes import GdbError, Left, Tracer


def plan(pid, start_time):
    site = {"return_address": "0x2009", "syscall_address": "0x2007"}
    return {"target": {"pid": pid, "start_time": start_time},
            "sites": [{"id": 0, "watch": "return-breakpoint", **site},
                      {"id": 1, "watch": "paired-breakpoints", **site},
                      {"id": 2, "watch": "none", **site}]}


@pytest.fixture
def session(gdb, tmp_path):
    """A session on this very process; its status lines are read by said()."""
    from whomap_gdb import session as module
    status = os.open(tmp_path / "status", os.O_RDWR | os.O_CREAT)
    made = module.Session({"plan": plan(os.getpid(), module.start_time(os.getpid())), "stack_bytes": 100,
                           "channel_fd": 9, "status_fd": status})
    made.said = lambda: [json.loads(line) for line in (tmp_path / "status").read_text().splitlines()]
    gdb.answers["attach"] = lambda command: setattr(gdb, "inferior_pid", os.getpid()) or ""
    gdb.answers["detach"] = lambda command: setattr(gdb, "inferior_pid", 0) or ""
    yield made
    os.close(status)


def test_sets_breakpoints_by_address_and_only_the_planned_ones(gdb, session):
    gdb.answers["continue"] = lambda command: setattr(gdb, "inferior_pid", 0) or ""
    with pytest.raises(Left):
        session.run()
    assert [b.spec for b in session.breakpoints] == ["*0x2009", "*0x2007", "*0x2009"]
    assert [line["state"] for line in session.said()] == ["attached", "armed", "ended"]
    assert session.said()[-1]["reason"] == "exited"


def test_a_hit_goes_to_the_core_and_never_stops_the_target(gdb, session):
    gdb.answers["continue"] = lambda command: setattr(gdb, "inferior_pid", 0) or ""
    with pytest.raises(Left):
        session.run()
    assert [b.stop() for b in session.breakpoints] == [False, False, False]
    assert [call for call in Tracer.last.calls if call[0].startswith("at_")] == [
        ("at_return", 0, 77), ("at_syscall", 1, 77), ("at_return", 1, 77)]


def test_an_error_in_a_hit_is_counted_and_does_not_stop_the_target(gdb, session):
    from whomap_gdb import breakpoints

    def broken(site, tid):
        raise KeyboardInterrupt("even this")

    failures = breakpoints.HitFailures()
    assert breakpoints.SiteBreakpoint(0x1, 0, broken, failures).stop() is False
    assert failures.count == 1 and "KeyboardInterrupt" in failures.first


@pytest.mark.parametrize("broken_step", ["attach", "catch"])
def test_a_failed_start_detaches_and_says_why(gdb, session, broken_step):
    def refuse(command):
        raise gdb.error("no can do")
    gdb.answers[broken_step] = refuse
    with pytest.raises(Left, match="quit 1"):
        session.run()
    failed = [line for line in session.said() if line["state"] == "failed"]
    assert failed[0]["error"] == "no can do"
    assert ("detach" in gdb.commands) == (broken_step == "catch")
    assert gdb.inferior_pid == 0


def test_another_process_under_the_same_pid_is_refused(gdb, session):
    session.plan["target"]["start_time"] += 1
    with pytest.raises(Left, match="quit 1"):
        session.run()
    assert not any(command.startswith("attach") for command in gdb.commands)


def test_without_a_collector_nothing_is_attached(gdb, session):
    Tracer.ready = False
    with pytest.raises(Left, match="quit 1"):
        session.run()
    assert not any(command.startswith("attach") for command in gdb.commands)


def test_exec_ends_the_trace(gdb, session):
    def exec_(command):
        catchpoint = gdb.Breakpoint("exec", type=gdb.BP_CATCHPOINT)
        catchpoint.hit_count = 1
        return ""
    gdb.answers["continue"] = exec_
    with pytest.raises(Left):
        session.run()
    assert "detach" in gdb.commands and session.said()[-1]["reason"] == "exec"


def test_an_unexpected_stop_is_continued(gdb, session):
    stops = iter(range(5))

    def stop(command):
        if next(stops, None) is None:
            gdb.inferior_pid = 0
        return ""
    gdb.answers["continue"] = stop
    with pytest.raises(Left):
        session.run()
    assert gdb.commands.count("continue") == 6


def test_a_trap_of_the_programs_own_is_given_to_it(gdb, session):
    def trap(command):
        gdb.signal = signal.SIGTRAP
        return ""

    def end(command):
        gdb.inferior_pid = 0
        return ""
    gdb.answers.update({"continue": trap, "signal": end})
    with pytest.raises(Left):
        session.run()
    assert gdb.commands[-3:-1] == ["continue", "signal SIGTRAP"]


@pytest.mark.parametrize("version, accepted", [("13.1", True), ("12.1", True), ("16.2.90.20250101-git", True),
                                               ("11.2", False), ("9.2-0ubuntu1", False)])
def test_gdb_versions(gdb, version, accepted):
    gdb.VERSION = version
    if accepted:
        import whomap_gdb  # noqa: F401
    else:
        with pytest.raises(GdbError, match="12.0 or later"):
            import whomap_gdb  # noqa: F401
