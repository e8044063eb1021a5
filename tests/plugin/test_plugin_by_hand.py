# SPDX-License-Identifier: Apache-2.0
"""The commands of an interactive GDB, without GDB."""

import argparse
import json
import os
import pathlib
import runpy
import sys
import types

import pytest

from fakes import GdbError, Tracer
from test_plugin import plan

PLUGIN = pathlib.Path(__file__).resolve().parents[2] / "gdb_plugin" / "whomap.py"
STUBS = {"traps": [{"address": "0x9000"}, {"address": "0x9010"}], "jumps": [{}, {}, {}]}


@pytest.fixture
def hand(gdb, monkeypatch):
    """The module by_hand on this very process as the one that GDB has stopped; hand.ran lists the programs it ran."""
    from whomap_gdb import by_hand, collector, program, supervisor
    gdb.inferior_pid = os.getpid()
    by_hand.ran = []
    by_hand.proof = ("32 calls", "")

    def run(*arguments):
        by_hand.ran.append(arguments)
        return by_hand.proof

    class Collector:
        def __init__(self, command, collector_fd, plan_text, inherited):
            by_hand.ran.append(tuple(command))
            by_hand.given = json.loads(plan_text)

        def wait(self):
            return True

        def said(self):
            return "whomap: wrote it"

    class Supervisor:
        def __init__(self, plan_text):
            by_hand.ran.append(("supervise",))
            Supervisor.standing_by = True

        def dismiss(self):
            Supervisor.standing_by = False

        def leave_the_rest(self):
            Supervisor.standing_by = "for the rest"

    monkeypatch.setattr(program, "run", run)
    monkeypatch.setattr(program, "path", lambda: "/bin/whomap")
    monkeypatch.setattr(program, "answer_of", lambda *arguments: json.dumps(plan(os.getpid(), 1)))
    monkeypatch.setattr(collector, "QuietCollector", Collector)
    monkeypatch.setattr(supervisor, "Supervisor", Supervisor)
    by_hand.fake_supervisor = Supervisor
    Tracer.stubs = STUBS
    Tracer.rest_of_plan_ = json.dumps({"sites": [{"id": 1, "watch": "return-breakpoint", "return_address": "0x2009"},
                                                 {"id": 2, "watch": "none"}]})
    return by_hand


def options(**given):
    return argparse.Namespace(**{"output": None, "duration": None, "max_hits": None, "syscalls": None, "no_stubs": False,
                                 "force": False, **given})


@pytest.fixture
def capture(hand):
    made = hand.Capture(options())
    made.start()
    return made


def calls():
    return [call[0] for call in Tracer.last.calls]


def test_stubs_go_in_before_breakpoints_and_everything_goes_out_again(gdb, hand, capsys):
    capture = hand.Capture(options())
    capture.start()
    assert calls() == ["install_stubs", "remember_code", "arm_traps", "armed"]
    assert [each.spec for each in gdb.all_breakpoints] == ["*0x2009", "*0x9000", "*0x9010", "exec"]
    assert "3 sites by stubs, 1 by breakpoints" in capsys.readouterr().out
    capture.status()
    assert "2 calls seen by GDB, 1 lost" in capsys.readouterr().out
    assert hand.fake_supervisor.standing_by
    capture.stop()
    assert calls()[4:] == ["disarm_traps", "remove_stubs", "finished"] and not hand.fake_supervisor.standing_by
    assert gdb.all_breakpoints == [] and capture.over
    assert all(registry == [] for registry in vars(gdb.events).values())
    assert "whomap: wrote it" in capsys.readouterr().out


def test_it_sets_nothing_in_gdb(gdb, hand, capture):
    capture.stop()
    assert set(gdb.commands) == {"catch exec", "maintenance flush dcache"}


def test_the_collector_is_told_what_the_user_wants(gdb, hand):
    hand.Capture(options(output="x", duration="3", max_hits="7", force=True)).start()
    command = hand.ran[-1]
    assert command[:-2] == ("/bin/whomap", "collect", "--by-hand", "--output", os.path.abspath("x"), "--max-slowdown", "100",
                            "--duration", "3", "--max-hits", "7", "--force")
    assert command[-2] == "--ring-fd" and hand.given["ring"] == {"tsc_forbidden": False, "threads": [[7, 0x1000]]}
    assert hand.ran.index(("supervise",)) < hand.ran.index(command)


@pytest.mark.parametrize("proof, stubs, why", [(("", "whomap: this GDB is unfit"), STUBS, "this GDB is unfit"),
                                               (("32 calls", ""), RuntimeError("no room"), "no room")])
def test_without_stubs_there_are_breakpoints_and_it_says_why(gdb, hand, capsys, proof, stubs, why):
    hand.proof, Tracer.stubs = proof, stubs
    hand.Capture(options()).start()
    said = capsys.readouterr().out
    assert "no stubs: " in said and why in said and "0 sites by stubs, 2 by breakpoints" in said
    assert "if this GDB is killed" in said
    assert ("install_stubs" in calls()) == (stubs is not STUBS)
    assert "--ring-fd" not in hand.ran[-1] and not getattr(hand.fake_supervisor, "standing_by", False)


@pytest.mark.parametrize("change, why", [
    (lambda gdb: setattr(gdb, "inferior_pid", 0), "no process"),
    (lambda gdb: setattr(gdb, "running", True), "interrupt it first"),
    (lambda gdb: setattr(gdb.inferior, "connection", types.SimpleNamespace(type="remote")), "not remote ones"),
    (lambda gdb: gdb.parameters.update({"follow-fork-mode": "child"}), "follow-fork-mode parent"),
    (lambda gdb: setattr(gdb, "inferiors", lambda: (gdb.inferior, types.SimpleNamespace(pid=4))), "more than one")])
def test_what_it_cannot_work_with_is_refused_before_anything_is_done(gdb, hand, change, why):
    change(gdb)
    with pytest.raises(GdbError, match=why):
        hand.Capture(options()).start()
    assert hand.ran == [] and gdb.commands == []


def test_a_failed_start_leaves_nothing_behind(gdb, hand):
    def refuse(command):
        raise gdb.error("no catchpoints today")
    gdb.answers["catch"] = refuse
    capture = hand.Capture(options())
    with pytest.raises(GdbError, match="no catchpoints today"):
        capture.start()
    assert "remove_stubs" in calls() and calls()[-1] == "finished" and capture.over
    assert not hand.fake_supervisor.standing_by
    assert [each for each in gdb.all_breakpoints if each.type != gdb.BP_CATCHPOINT] == []


def test_a_running_process_is_stopped_and_continued(gdb, hand, capture):
    gdb.running = True
    capture.stop()
    assert calls()[-1] == "disarm_traps" and gdb.commands[-1] == "interrupt" and not capture.over
    gdb.running = False
    gdb.events.stop[0](types.SimpleNamespace())
    assert "remove_stubs" in calls() and capture.over and gdb.commands[-1] == "continue &"


def test_it_stays_stopped_at_a_breakpoint_of_the_users(gdb, hand, capture):
    gdb.running = True
    capture.stop()
    gdb.running = False
    gdb.events.stop[0](types.SimpleNamespace(breakpoints=[object()]))
    assert capture.over and "continue &" not in gdb.commands


@pytest.mark.parametrize("removal", [RuntimeError("no"), {"handler_left": True}])
def test_what_cannot_be_taken_out_now_is_the_supervisors(gdb, hand, capture, monkeypatch, capsys, removal):
    def remove_stubs(self):
        if isinstance(removal, Exception):
            raise removal
        return removal
    monkeypatch.setattr(Tracer, "remove_stubs", remove_stubs)
    capture.stop()
    assert hand.fake_supervisor.standing_by == "for the rest" and "GDB detaches" in capsys.readouterr().out


def test_a_stop_of_the_users_own_ends_nothing(gdb, hand, capture):
    gdb.events.stop[0](types.SimpleNamespace(breakpoints=[]))
    gdb.events.before_prompt[0]()
    assert not capture.over


def test_a_new_program_gets_none_of_the_breakpoints(gdb, hand, capture, monkeypatch):
    gdb.events.new_objfile[0](None)  # a library
    assert len(gdb.all_breakpoints) == 4
    monkeypatch.setattr(Tracer, "runs_same_program", lambda self: False, raising=False)
    gdb.events.new_objfile[0](None)
    assert [each.spec for each in gdb.all_breakpoints] == ["exec"]


@pytest.mark.parametrize("end", ["exec", "exit", "detach"])
def test_a_process_that_is_gone_ends_the_capture(gdb, hand, capture, end):
    if end == "exec":
        gdb.events.stop[0](types.SimpleNamespace(breakpoints=[gdb.all_breakpoints[-1]]))
    elif end == "exit":
        gdb.events.exited[0](types.SimpleNamespace(inferior=gdb.inferior))
    else:
        gdb.inferior_pid = 0
        gdb.events.before_prompt[0]()
    assert capture.over and calls()[-1] == "finished" and gdb.all_breakpoints == []
    assert "remove_stubs" not in calls()  # the supervisor's to do, where there is anything to do


def test_quitting_gdb_disarms_first(gdb, hand, capture):
    gdb.events.gdb_exiting[0](None)
    assert calls()[-2:] == ["disarm_traps", "finished"]


def test_when_hits_are_up_the_code_goes_back_at_the_next_stop(gdb, hand, capture):
    gdb.running = True
    capture.asked_to_end()
    assert "remove_stubs" not in calls() and not any(each.enabled for each in capture.breakpoints)
    gdb.running = False
    gdb.events.stop[0](types.SimpleNamespace())
    assert "remove_stubs" in calls() and "continue &" not in gdb.commands


def test_sourcing_registers_once_and_changes_no_path(gdb):
    before = list(sys.path), sys.dont_write_bytecode
    for _ in range(2):
        runpy.run_path(str(PLUGIN))
    assert gdb.Command.registered == ["whomap", "whomap plan", "whomap start", "whomap status", "whomap stop",
                                      "whomap report"]
    assert (list(sys.path), sys.dont_write_bytecode) == before
    assert gdb.commands == []


def test_every_command_has_its_help(gdb):
    from whomap_gdb import commands
    for command in commands.Subcommand.__subclasses__():
        first, _, rest = command.__doc__.partition("\n")
        assert first.endswith(".") and "Usage: whomap %s" % command.__name__.lower() in rest


def test_an_old_gdb_and_a_foreign_python_are_told(gdb, monkeypatch):
    gdb.VERSION = "11.2"
    with pytest.raises(GdbError, match="needs GDB 12.0 or later, this is GDB 11.2"):
        runpy.run_path(str(PLUGIN))
    gdb.VERSION = "13.1"
    monkeypatch.setitem(sys.modules, "_whomap", None)
    with pytest.raises(GdbError, match="not built for the Python in this GDB"):
        runpy.run_path(str(PLUGIN))
