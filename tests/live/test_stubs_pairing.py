# SPDX-License-Identifier: Apache-2.0
"""Every captured call is one that the target made, with its own thread, arguments and result, and none is missing: the
target's own log is the judge."""

import struct

import pytest

from stub_support import Trace, compile_target, runs_again
from support import code_of, differences

NUMBERS = {"mmap": 9, "munmap": 11, "brk": 12, "mremap": 25}
ARGUMENTS = {9: 6, 11: 2, 12: 1, 25: 5}
RECORD = struct.Struct("11Q")
FAILED = "failed"


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return compile_target("logged_calls", tmp_path_factory.mktemp("pairing"))


def result_of(value, page=4096):
    """The C library hides the kernel's error number; -4095..-1 are failures."""
    return FAILED if value > 2**64 - page else value


def arguments_of(number, values):
    """What the kernel looks at: no new address of an mremap that is not asked to use it, and 32 bits of protection, flags and
    descriptor (man 2 mmap: they are int)."""
    if number == 9:
        return (*values[:2], *(value & 0xffffffff for value in values[2:5]), values[5])
    return tuple(values[:4 if number == 25 and not values[3] & 2 else ARGUMENTS[number]])


def read_log(path):
    """{what: [(enter, exit), ...]} of all that the target did; what: thread, number, arguments, result."""
    calls = {}
    for fields in RECORD.iter_unpack(path.read_bytes()):
        tid, number, values, result, enter, leave = fields[0], fields[1], fields[2:8], fields[8], fields[9], fields[10]
        if tid:
            what = (tid, number, arguments_of(number, values), result_of(result))
            calls.setdefault(what, []).append((enter, leave))
    return calls


def mispaired(events, log):
    """Events that are no call of the log at that time. What is found is taken out of the log."""
    wrong = []
    for event in events:
        number = NUMBERS[event["call"]]
        values = [int(value, 16) for value in event["args"]]
        what = (event["tid"], number, arguments_of(number, values), result_of(int(event["result"], 16)))
        times = log.get(what, [])
        fitting = [time for time in times if time[0] <= event["exit_ns"] <= time[1]]
        if fitting:
            times.remove(fitting[0])
        else:
            wrong.append(event)
    return wrong


@pytest.mark.parametrize("engine", ["gdb", "probe"])
@pytest.mark.parametrize("mode, quota", [("", 12_600), ("signals", 6_300)])
def test_every_call_is_its_own(targets, program, tmp_path, mode, quota, engine):
    log_path = tmp_path / "log"
    process = targets.start(program, log_path, quota, *filter(None, [mode]))
    before = code_of(process.pid)
    trace = Trace(process.pid, tmp_path / "t", engine=engine, seconds=170).wait_armed()
    process.stdin.write(b"g")
    process.stdin.flush()
    assert process.stdout.readline() == b"done\n"
    errors = trace.interrupt()
    assert runs_again(process.pid)
    assert differences(before, code_of(process.pid)) == []

    log = read_log(log_path)
    made = sum(map(len, log.values()))
    assert made >= 8 * quota
    events = trace.events()
    assert mispaired(events, log) == []
    end = trace.records()[-1]
    # On a busy machine the reader may be too slow; then it says how many it has not seen, to the last one.
    assert len(events) + end["lost"] == made, errors
    assert sum(map(len, log.values())) == end["lost"]
    assert len({event["tid"] for event in events}) == 8
    failed = [event for event in events if result_of(int(event["result"], 16)) == FAILED]
    assert len(failed) > quota / 100
    assert end["type"] == "end" and end["failed_calls"] == len(failed) and not end.get("mispaired")
    sites = next(record["plan"]["sites"] for record in trace.records() if record.get("format") == "whomap-trace")
    assert {sites[event["site"]]["kind"] for event in events} >= {"constant", "variable"}
