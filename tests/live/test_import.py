# SPDX-License-Identifier: Apache-2.0
"""whomap import on what the other tools write here and now: every call of it is one that the target says it made."""

import os
import pathlib
import shutil
import signal
import subprocess

import pytest

from support import EXAMPLES, read_trace, report_of, run, wait_until

TRACEFS = pathlib.Path("/sys/kernel/tracing/events/syscalls")


@pytest.fixture
def raw_mmap(targets, tmp_path):
    log = tmp_path / "target.log"
    process = targets.start(EXAMPLES / "raw_mmap", 120, log)
    process.log = log
    return process


def regions(pid):
    return pathlib.Path(f"/proc/{pid}/smaps").read_text()


def check_calls(trace, log, with_lengths=True):
    """Every event is in the target's log; returns how many there are."""
    did = set(log.read_text().splitlines())
    addresses = {line.split()[1] for line in did}
    records = read_trace(trace)
    frames = {record["id"]: [frame.get("function") for frame in record["frames"]] for record in records
              if record.get("type") == "stack"}
    seen = 0
    for record in records:
        if record.get("type") != "event" or "handle_request" not in frames[record["stack"]]:
            continue
        seen += 1
        chain = frames[record["stack"]]
        if record["call"] == "mmap":
            assert record["result"] in addresses, record
            if with_lengths:
                kind = "leak" if "pool_grow" in chain or "pool_take" in chain else "map"
                assert f"{kind} {record['result']} {int(record['args'][1], 16)}" in did, (record, chain)
        else:
            assert record["call"] == "munmap" and record["result"] == "0x0"
            if with_lengths:
                assert f"unmap {record['args'][0]} {int(record['args'][1], 16)}" in did, record
    return seen


def import_log(kind, log, trace):
    result = run("import", "--from", kind, log, "-o", trace)
    assert result.returncode == 0, result.stderr
    return result.stderr


def names_the_leak(trace, saved):
    result = run("match", trace, saved, "--format", "json")
    report = report_of(result)
    assert report["verdict"]["class"] == "leak", report["verdict"]
    assert result.returncode == 0
    growth = report["growth"]
    assert growth["explained_bytes"] + growth["unexplained_bytes"] == growth["mapped_bytes"] > 0
    first = report["stacks"][0]
    assert first["share"] > 0.9, report["verdict"]
    assert "pool_take" in [frame["function"] for frame in first["frames"]]
    return report


def until_calls(process, count):
    wait_until(lambda: process.log.read_text().count("\n") > count, "the target's calls")


def lines(process):
    return process.log.read_text().count("\n")


def test_our_plain_script(raw_mmap, tmp_path):
    script = tmp_path / "x.gdb"
    assert run("script", "--plain", "-p", raw_mmap.pid, "-o", script, "-d", 3).returncode == 0
    text = script.read_text()
    assert "whomap import --from gdb-log" in text
    saved = regions(raw_mmap.pid)
    log = tmp_path / "gdb.log"
    log.write_text(subprocess.run(["gdb", "-nx", "-batch", "-x", script], capture_output=True, text=True,
                                  stdin=subprocess.DEVNULL, timeout=60).stdout)
    (tmp_path / "saved").write_text(saved + regions(raw_mmap.pid))
    error = import_log("gdb-log", log, tmp_path / "t.trace")
    assert "not understood" not in error
    assert check_calls(tmp_path / "t.trace", raw_mmap.log) > 20
    # Between the snapshots and the script's own time the target goes on.
    result = run("match", tmp_path / "t.trace", tmp_path / "saved", "--format", "json")
    report = report_of(result)
    assert report["verdict"]["class"] == "leak"
    assert report["trace"]["seconds"] is None and report["stacks"][0]["bytes_per_minute"] is None


def test_strace_with_stacks(raw_mmap, tmp_path):
    log = tmp_path / "strace.log"
    with subprocess.Popen(["strace", "-f", "-k", "-ttt", "-e", "trace=memory", "-p", str(raw_mmap.pid), "-o", log],
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as strace:
        assert "attached" in strace.stderr.readline()
        before = regions(raw_mmap.pid)
        until_calls(raw_mmap, lines(raw_mmap) + 300)
        after = regions(raw_mmap.pid)
        strace.send_signal(signal.SIGINT)
        strace.communicate(timeout=60)
    (tmp_path / "saved").write_text(before + after)
    import_log("strace", log, tmp_path / "t.trace")
    assert check_calls(tmp_path / "t.trace", raw_mmap.log) > 200
    names_the_leak(tmp_path / "t.trace", tmp_path / "saved")


def test_strace_without_stacks_says_so(raw_mmap, tmp_path):
    log = tmp_path / "strace.log"
    with subprocess.Popen(["strace", "-f", "-p", str(raw_mmap.pid), "-o", log], stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True) as strace:
        assert "attached" in strace.stderr.readline()
        before = regions(raw_mmap.pid)
        until_calls(raw_mmap, lines(raw_mmap) + 100)
        after = regions(raw_mmap.pid)
        strace.send_signal(signal.SIGINT)
        strace.communicate(timeout=60)
    (tmp_path / "saved").write_text(before + after)
    import_log("strace", log, tmp_path / "t.trace")
    result = run("match", tmp_path / "t.trace", tmp_path / "saved")
    assert "without a captured stack" in " ".join(result.stdout.split())


def needs_tracepoints(*tools):
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    if os.geteuid() != 0:
        pytest.skip("system call tracepoints need root")
    if not TRACEFS.is_dir():
        pytest.skip("the kernel's tracepoints are not there: mount -t tracefs nodev /sys/kernel/tracing")


def test_perf_script(raw_mmap, tmp_path):
    needs_tracepoints("perf")
    data = tmp_path / "perf.data"
    events = ",".join(f"syscalls:sys_{side}_{call}" for call in ("mmap", "munmap") for side in ("enter", "exit"))
    before = regions(raw_mmap.pid)
    # perf says nothing when it is ready: it records for a time of its own.
    subprocess.run(["perf", "record", "-q", "-e", events, "--call-graph", "dwarf", "-o", data, "-p", str(raw_mmap.pid),
                    "sleep", "3"], check=True, capture_output=True)
    after = regions(raw_mmap.pid)
    log = tmp_path / "perf.txt"
    log.write_text(subprocess.run(["perf", "script", "-i", data], capture_output=True, text=True, check=True).stdout)
    (tmp_path / "saved").write_text(before + after)
    import_log("perf-script", log, tmp_path / "t.trace")
    assert check_calls(tmp_path / "t.trace", raw_mmap.log) > 200
    report = report_of(run("match", tmp_path / "t.trace", tmp_path / "saved", "--format", "json"))
    assert report["verdict"]["class"] == "leak"
    assert report["trace"]["seconds"] > 1


PUBLISHED = r"""
tracepoint:syscalls:sys_enter_mmap /pid == (uint64)$1/ {
    printf("Stack trace:\n%s\n", ustack(perf));
    printf("PID/TID: %d %d | ", pid, tid);
    printf("ENTER mmap(addr=%p, len=%d, prot=%d, flags=%d, fd=%d, off=%d)\n",
           args->addr, args->len, args->prot, args->flags, args->fd, args->off);
}
tracepoint:syscalls:sys_exit_mmap /pid == (uint64)$1/ {
    printf("PID/TID: %d %d | ", pid, tid);
    printf("EXIT mmap: ret=%p\n", args->ret);
}
tracepoint:syscalls:sys_enter_munmap /pid == (uint64)$1/ {
    printf("PID/TID: %d %d | ", pid, tid);
    printf("ENTER munmap(addr=%p, len=%d)\n", args->addr, args->len);
}
tracepoint:syscalls:sys_exit_munmap /pid == (uint64)$1/ {
    printf("PID/TID: %d %d | ", pid, tid);
    printf("EXIT munmap: ret=%d\n", args->ret);
}
"""


def test_bpftrace(raw_mmap, tmp_path):
    needs_tracepoints("bpftrace")
    script, log = tmp_path / "script.bt", tmp_path / "bpftrace.txt"
    script.write_text(PUBLISHED)
    with log.open("w") as output, subprocess.Popen(["bpftrace", "-B", "line", script, str(raw_mmap.pid)], stdout=output,
                                                   stderr=subprocess.PIPE) as bpftrace:
        try:
            wait_until(lambda: "EXIT" in log.read_text() or bpftrace.poll() is not None, "bpftrace to begin")
            if bpftrace.poll() is not None:
                pytest.skip("bpftrace does not run here: " + bpftrace.stderr.read().decode()[-200:])
            before = regions(raw_mmap.pid)
            seen = log.read_text().count("EXIT mmap")
            wait_until(lambda: log.read_text().count("EXIT mmap") > seen + 150, "bpftrace to follow")
            after = regions(raw_mmap.pid)
            newest = [line.split()[1] for line in raw_mmap.log.read_text().splitlines() if line.startswith("leak")][-1]
            wait_until(lambda: f"ret={newest}" in log.read_text(), "bpftrace to print what the regions show")
        finally:
            bpftrace.send_signal(signal.SIGINT)
        bpftrace.communicate(timeout=60)
    (tmp_path / "saved").write_text(before + after)
    import_log("bpftrace", log, tmp_path / "t.trace")
    report = report_of(run("match", tmp_path / "t.trace", tmp_path / "saved", "--format", "json"))
    # One frame, as it was in the investigation: which bytes, but not whose.
    first = report["stacks"][0]
    assert [frame["function"] for frame in first["frames"]] == ["syscall"] and first["truncated"]
    assert first["share"] > 0.8 and report["verdict"]["class"] == "leak"
    assert "no frame of the program itself" in report["verdict"]["text"]


def test_wrong_use(tmp_path, raw_mmap):
    log = tmp_path / "strace.log"
    log.write_text("1 mmap(NULL, 4096, PROT_READ, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f0000000000\n")
    out = tmp_path / "t.trace"
    for arguments, status, words in (
            ((log, "-o", out), 2, ("--from",)),
            (("--from", "dtrace", log, "-o", out), 2, ("gdb-log, bpftrace, perf-script, strace",)),
            (("--from", "strace", "-o", out), 2, ("no log file",)),
            (("--from", "gdb-log", log, "-o", out), 6, ("looks like the output of strace", "--from strace")),
            (("--from", "strace", tmp_path / "none", "-o", out), 6, ("cannot open",)),
            (("--from", "strace", log, "-o", tmp_path / "no" / "t"), 8, ("cannot create",))):
        result = run("import", *arguments)
        assert result.returncode == status, result.stderr
        assert len(result.stderr.splitlines()) == 1
        for word in words:
            assert word in result.stderr
        assert not out.exists()
    assert run("import", "--from", "strace", log, "-o", out, "-q").returncode == 0
    assert out.stat().st_mode & 0o777 == 0o600
    assert run("import", "--from", "strace", log, "-o", out).returncode == 8, "not over what is there"
    assert run("import", "--from", "strace", log, "-o", out, "--force").returncode == 0
    own = tmp_path / "own.json"
    own.write_text('{"format":"whomap-signatures","version":1,"signatures":[{"id":"X","frames":[{"function":"f"}],'
                   '"cause":"c","remedy":"r","source":"s","certainty":"A"}]}')
    refused = run("match", out, "--signatures", own)
    assert refused.returncode == 6 and "a remedy needs its hazard" in refused.stderr
