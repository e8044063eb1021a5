# SPDX-License-Identifier: Apache-2.0
"""whomap trace on the raw_mmap example: the right stack, the right addresses, an unharmed target."""

import json
import os
import signal
import stat
import struct
import subprocess

import pytest

from support import (EXAMPLES, WHOMAP, code_of, differences, functions_of, gdb_of, is_running, read_trace, report_of,
                      run, status_field, wait_until)

LEAK_CHAIN = ["from_kernel", "pool_grow", "pool_take", "handle_request", "main"]


@pytest.fixture
def raw_mmap(targets, tmp_path):
    log = tmp_path / "target.log"
    process = targets.start(EXAMPLES / "raw_mmap", 120, log)
    process.log = log
    return process


def entry_point(pid):
    """AT_ENTRY of the auxiliary vector."""
    with open(f"/proc/{pid}/auxv", "rb") as vector:
        return dict(struct.iter_unpack("QQ", vector.read()))[9]


def logged(log):
    """{(what, address, length)} as the target wrote them."""
    entries = []
    for line in log.read_text().splitlines():
        what, address, length = line.split()
        entries.append((what, int(address, 16), int(length)))
    return entries


def test_names_the_leak_and_leaves_the_code_as_found(raw_mmap, tmp_path):
    before = code_of(raw_mmap.pid)
    trace = tmp_path / "out.trace"
    result = run("trace", "-p", raw_mmap.pid, "-d", 3, "--format", "json", "-o", trace)
    assert result.returncode == 0, result.stderr
    assert is_running(raw_mmap.pid)
    assert differences(before, code_of(raw_mmap.pid)) == []

    report = report_of(result)
    assert report["format"] == "whomap-report" and report["version"] == 1
    assert report["target"]["pid"] == raw_mmap.pid
    assert report["verdict"]["class"] == "leak"
    growth = report["growth"]
    assert growth["explained_bytes"] + growth["unexplained_bytes"] == growth["mapped_bytes"] > 1_000_000
    first = report["stacks"][0]
    assert first["syscall"] == "mmap"
    assert first["share"] >= 0.95
    assert functions_of(first)[:6] == ["syscall", *LEAK_CHAIN] or functions_of(first)[1:6] == LEAK_CHAIN
    by_function = {frame["function"]: frame for frame in first["frames"]}
    assert by_function["pool_grow"]["file"].endswith("pool.c") and by_function["pool_grow"]["line"]
    assert by_function["handle_request"]["file"].endswith("main.c")
    assert first["truncated"] is None

    # What was captured is what the target says it did.
    mapped = {(address, length) for what, address, length in logged(raw_mmap.log) if what in ("leak", "map")}
    unmapped = {(address, length) for what, address, length in logged(raw_mmap.log) if what == "unmap"}
    records = read_trace(trace)
    leaks = 0
    # The library's own calls; stdio and the loader make others.
    stack_functions = {record["stack"]: [frame.get("function") for frame in record["frames"]]
                       for record in records if record.get("type") == "symbols"}
    for record in records:
        if record.get("type") != "event":
            continue
        chain = stack_functions[record["stack"]]
        length = int(record["args"][1], 16)
        if record["call"] == "mmap" and "handle_request" in chain:
            assert (int(record["result"], 16), length) in mapped
            leaks += "pool_grow" in chain
        if record["call"] == "munmap" and "handle_request" in chain:
            assert (int(record["args"][0], 16), length) in unmapped
    assert leaks > 20
    assert stat.S_IMODE(os.stat(trace).st_mode) == 0o600


def test_matches_offline_as_live(raw_mmap, tmp_path):
    trace = tmp_path / "out.trace"
    live = run("trace", "-p", raw_mmap.pid, "-d", 1, "--format", "json", "-o", trace)
    offline = run("match", trace, "--format", "json")
    assert offline.returncode == live.returncode == 0
    assert json.loads(offline.stdout) == json.loads(live.stdout)
    assert json.loads(run("report", trace, "--format", "json").stdout) == json.loads(live.stdout)
    text = run("match", trace)
    assert text.returncode == 0 and "pool_grow" in text.stdout


def test_code_differs_only_at_planned_sites_while_tracing(raw_mmap, tmp_path):
    plan = json.loads(run("plan", "-p", raw_mmap.pid, "--format", "json").stdout)
    planned = set()
    for site in plan["sites"]:
        if site["watch"] != "none":
            planned.add(int(site["return_address"], 16))
        if site["watch"] == "paired-breakpoints":
            planned.add(int(site["syscall_address"], 16))
        if site["stub"]["possible"]:
            start = int(site["stub"]["address"], 16)
            planned.update(range(start, start + site["stub"]["length"]))
    # To step over a breakpoint, GDB runs a copy of the instruction at the program's entry point, which no program
    # runs twice; for the moment of the step the copy stands there.
    scratch = range(entry_point(raw_mmap.pid), entry_point(raw_mmap.pid) + 32)
    before = code_of(raw_mmap.pid)
    tracer = subprocess.Popen([WHOMAP, "trace", "-p", str(raw_mmap.pid), "-d", "60", "-q", "-o", tmp_path / "t"],
                              stdout=subprocess.DEVNULL)
    try:
        # While stubs are put in, a thread makes calls for that in the padding behind the program's code.
        wait_until(lambda: (tmp_path / "t").exists() and '"type":"snapshot"' in (tmp_path / "t").read_text(), "the trace to begin")
        assert differences(before, code_of(raw_mmap.pid))
        for _ in range(20):
            assert {at for at in differences(before, code_of(raw_mmap.pid)) if at not in scratch} <= planned
    finally:
        tracer.send_signal(signal.SIGINT)
    assert tracer.wait(60) == 130
    assert differences(before, code_of(raw_mmap.pid)) == []
    assert is_running(raw_mmap.pid)


def test_interrupt_keeps_and_reports_what_was_captured(raw_mmap, tmp_path):
    trace = tmp_path / "t"
    tracer = subprocess.Popen([WHOMAP, "trace", "-p", str(raw_mmap.pid), "-d", "60", "--format", "json", "-o", trace],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: trace.exists() and '"type":"event"' in trace.read_text(), "a captured call")
    tracer.send_signal(signal.SIGINT)
    out, err = tracer.communicate(timeout=60)
    assert tracer.returncode == 130, err
    assert json.loads(out)["trace"]["events"] > 0
    assert is_running(raw_mmap.pid)


def test_ends_by_hits(raw_mmap, tmp_path):
    result = run("trace", "-p", raw_mmap.pid, "-d", 60, "--max-hits", 50, "--format", "json", "-o", tmp_path / "t")
    assert result.returncode in (0, 1), result.stderr
    assert report_of(result)["trace"]["events"] >= 50
    assert read_trace(tmp_path / "t")[-1]["reason"] == "hits"


def test_pid_alone_means_trace_and_the_file_gets_a_name(raw_mmap, tmp_path):
    result = run("-p", raw_mmap.pid, "-d", 1, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    names = [path.name for path in tmp_path.glob("whomap-*.trace")]
    assert len(names) == 1 and names[0].startswith(f"whomap-raw_mmap-{raw_mmap.pid}-")
    assert names[0] in result.stderr


def test_saved_plan_works_on_another_process(raw_mmap, targets, tmp_path):
    plan = tmp_path / "plan.json"
    assert run("plan", "-p", raw_mmap.pid, "--format", "json", "-o", plan).returncode == 0
    other = targets.start(EXAMPLES / "raw_mmap", 60)
    result = run("trace", "-p", other.pid, "-d", 2, "--plan", plan, "--format", "json", "-o", tmp_path / "t")
    assert result.returncode == 0, result.stderr
    assert report_of(result)["stacks"][0]["share"] >= 0.95


@pytest.mark.parametrize("flags", [("-batch",), ()], ids=["batch", "plain"])
def test_script_for_gdb(raw_mmap, tmp_path, flags):
    script, trace = tmp_path / "x.gdb", tmp_path / "x.trace"
    before = code_of(raw_mmap.pid)
    written = run("script", "-p", raw_mmap.pid, "-o", script, "-d", 2, "--trace", trace)
    assert written.returncode == 0, written.stderr
    done = subprocess.run(["gdb", "-nx", *flags, "-x", str(script)], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=60)
    answer = run("match", trace, "--format", "json")
    assert answer.returncode == 0, done.stdout + done.stderr + answer.stderr
    assert json.loads(answer.stdout)["stacks"][0]["share"] >= 0.95
    assert is_running(raw_mmap.pid)
    assert differences(before, code_of(raw_mmap.pid)) == []


SLOW_MAPPER = """
#include <poll.h>
#include <stdio.h>
#include <sys/mman.h>
int main(void) {
  puts("ready"); fflush(stdout);
  for (;;) { mmap(NULL, 65536, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); poll(NULL, 0, 500); }
}
"""


def test_killed_gdb_leaves_a_running_target_with_its_code(targets, compile_c, tmp_path):
    """Ordinary breakpoints: when GDB dies, whomap puts the code back at once. (A hit before that would
    end the target; this one makes a call every half second, and GDB is killed right after one.)"""
    process = targets.start(compile_c(SLOW_MAPPER))
    before = code_of(process.pid)
    trace = tmp_path / "t"
    tracer = subprocess.Popen([WHOMAP, "trace", "-p", str(process.pid), "--engine", "gdb", "--no-stubs", "-d", "60", "-o", trace],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: trace.exists() and '"type":"event"' in trace.read_text(), "a captured call")
    os.kill(gdb_of(process.pid), signal.SIGKILL)
    out, err = tracer.communicate(timeout=60)
    assert "put back" in err
    wait_until(lambda: is_running(process.pid), "the target to run on")
    assert differences(before, code_of(process.pid)) == []
    assert read_trace(trace)[-1]["reason"] == "engine-died"


def test_without_stubs_too_repair_knows_what_was_there(targets, tmp_path):
    """Everybody who could put the breakpoints back is killed, while no thread of the target is near one."""
    process = targets.start("/bin/sh", "-c", "echo ready; read line; sleep 0.1; exec cat", ready=True)
    before = code_of(process.pid)
    state = {"WHOMAP_STATE_DIR": str(tmp_path / "state")}
    trace = tmp_path / "t"
    tracer = subprocess.Popen([WHOMAP, "trace", "-p", str(process.pid), "--engine", "gdb", "--no-stubs", "-d", "60", "-o", trace],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **state})
    wait_until(lambda: trace.exists() and '"type":"snapshot"' in trace.read_text(), "the trace to begin")
    second = run("trace", "-p", process.pid, "--engine", "gdb", "--no-stubs", "-d", 1, "-o", tmp_path / "u", env=state)
    assert second.returncode == 3 and "traced" in second.stderr, second.stderr
    gdb = gdb_of(process.pid)
    os.kill(tracer.pid, signal.SIGSTOP)
    os.kill(gdb, signal.SIGKILL)
    os.kill(tracer.pid, signal.SIGKILL)
    tracer.wait()
    wait_until(lambda: status_field(process.pid, "TracerPid") == "0", "GDB to be gone")
    assert differences(before, code_of(process.pid))
    os.kill(process.pid, signal.SIGCONT)  # what a killed GDB may leave behind
    repaired = run("repair", "-p", process.pid, env=state)
    assert repaired.returncode == 0 and "the original code is back" in repaired.stdout, (repaired.stdout, repaired.stderr)
    assert differences(before, code_of(process.pid)) == []
    assert "nothing is known" in run("repair", "-p", process.pid, env=state).stdout
    process.stdin.write(b"\nand on\n")
    process.stdin.close()
    assert process.stdout.read() == b"and on\n"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP])
def test_a_gdb_that_is_told_to_end_detaches_first(raw_mmap, tmp_path, how):
    before = code_of(raw_mmap.pid)
    for round_ in range(5):
        trace = tmp_path / f"t{round_}"
        tracer = subprocess.Popen([WHOMAP, "trace", "-p", str(raw_mmap.pid), "--engine", "gdb", "-d", "60", "-q", "-o", trace],
                                  stdout=subprocess.DEVNULL)
        wait_until(lambda: trace.exists() and '"type":"event"' in trace.read_text(), "a captured call")
        os.kill(gdb_of(raw_mmap.pid), how)
        tracer.wait(60)
        assert is_running(raw_mmap.pid)
        assert differences(before, code_of(raw_mmap.pid)) == []
        assert read_trace(trace)[-1]["reason"] == "engine-stopped"


def test_killed_whomap_makes_gdb_let_go(raw_mmap, tmp_path):
    before = code_of(raw_mmap.pid)
    tracer = subprocess.Popen([WHOMAP, "trace", "-p", str(raw_mmap.pid), "-d", "60", "-q", "-o", tmp_path / "t"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: (tmp_path / "t").exists() and differences(before, code_of(raw_mmap.pid)), "the trace to begin")
    tracer.kill()
    tracer.wait()
    wait_until(lambda: is_running(raw_mmap.pid), "GDB to detach")
    assert differences(before, code_of(raw_mmap.pid)) == []
    cut = run("match", tmp_path / "t")
    assert cut.returncode in (0, 1) and "cut" in cut.stdout + cut.stderr
