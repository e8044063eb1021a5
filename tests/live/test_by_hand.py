# SPDX-License-Identifier: Apache-2.0
"""whomap inside an interactive GDB that has attached already."""

import fcntl
import json
import os
import pathlib
import re

import pytest

from gdb_prompt import GdbPrompt
from stub_support import compile_target, runs_again
from support import EXAMPLES, code_of, differences, functions_of, is_running, read_trace, run, wait_until

LEAK_CHAIN = ["from_kernel", "pool_grow", "pool_take", "handle_request", "main"]


@pytest.fixture
def prompt(tmp_path):
    started = []

    def start(*arguments, **options):
        started.append(GdbPrompt(*arguments, cwd=tmp_path, **options))
        return started[-1]
    yield start
    for each in started:
        each.end()


@pytest.fixture
def raw_mmap(targets, tmp_path):
    log = tmp_path / "target.log"
    process = targets.start(EXAMPLES / "raw_mmap", 300, log)
    process.log = log
    process.code = code_of(process.pid)
    return process


@pytest.fixture(scope="module")
def under_load(tmp_path_factory):
    return compile_target("under_load", tmp_path_factory.mktemp("by_hand"))


def captured(gdb):
    """Calls so far, by whomap status."""
    return int(gdb.do("whomap status").split(" calls seen")[0].split()[-1])


def wait_captured(gdb, count):
    wait_until(lambda: captured(gdb) >= count, f"{count} captured calls")


def logged(path):
    """{(what, address, length)} as the target wrote them."""
    return {(what, int(address, 16), int(length))
            for what, address, length in (line.split() for line in path.read_text().splitlines() if line.count(" ") == 2)}


def check_calls(records, log):
    """The library's own calls are those that the target has written down."""
    did = logged(log)
    stacks = {record["stack"]: [frame.get("function") for frame in record["frames"]]
              for record in records if record.get("type") == "symbols"}
    count = 0
    for record in records:
        if record.get("type") != "event" or "handle_request" not in stacks[record["stack"]]:
            continue
        length = int(record["args"][1], 16)
        if record["call"] == "mmap":
            assert {("leak", int(record["result"], 16), length), ("map", int(record["result"], 16), length)} & did
        else:
            assert record["call"] == "munmap" and ("unmap", int(record["args"][0], 16), length) in did
        count += 1
    return count


def settings(gdb):
    """All of them, as "name:  what it is". Convenience variables are none: GDB itself sets $bpnum and others."""
    kept, variables = [], False
    for line in gdb.do("show").splitlines():
        if match := re.match(r"[a-z][\w -]*:  ", line):
            variables = match[0].startswith("convenience")
        if not variables and not line.startswith("history size"):
            kept.append(line)
    assert len(kept) > 100
    return kept


def own_of_gdb(gdb, process):
    """Where GDB itself changes the code while the process runs (_dl_debug_state)."""
    gdb.do("continue &")
    gdb.wait_running(process.pid)
    changed = set(differences(process.code, code_of(process.pid)))
    stop(gdb)
    return changed


def stop(gdb):
    gdb.send("interrupt")
    gdb.read("SIGINT")


def test_captures_while_the_user_continues_and_reports_what_match_says(raw_mmap, prompt, tmp_path):
    gdb = prompt("-p", raw_mmap.pid)
    before = settings(gdb)
    assert "error" not in gdb.load().lower()
    assert settings(gdb) == before
    started = gdb.do("whomap start -o hand.trace")
    assert f"captures process {raw_mmap.pid}" in started and "by stubs" in started
    gdb.send("continue")
    gdb.wait_running(raw_mmap.pid)
    wait_until(lambda: '"type":"event"' in (tmp_path / "hand.trace").read_text(), "captured calls")
    wait_until(lambda: raw_mmap.log.read_text().count("leak") > 40, "the target to leak more")
    gdb.interrupt()
    gdb.read("SIGINT")
    assert "next: whomap match" in gdb.do("whomap stop")
    assert settings(gdb) == before
    assert "No breakpoints" in gdb.do("info breakpoints")
    assert differences(raw_mmap.code, code_of(raw_mmap.pid)) == []

    answer = gdb.do("whomap report --format json")
    offline = run("match", tmp_path / "hand.trace", "--format", "json")
    assert offline.returncode == 0 and answer.strip() == offline.stdout.strip()
    first = json.loads(answer)["stacks"][0]
    assert functions_of(first)[1:6] == LEAK_CHAIN and first["share"] >= 0.95
    assert check_calls(read_trace(tmp_path / "hand.trace"), raw_mmap.log) > 20
    assert "LEAK: from_kernel" in gdb.do("whomap report")

    gdb.do("detach")
    wait_until(lambda: is_running(raw_mmap.pid), "the process to run on")
    assert differences(raw_mmap.code, code_of(raw_mmap.pid)) == []


def test_in_the_background_and_again_and_without_a_call_in_between(raw_mmap, prompt, tmp_path):
    gdb = prompt("-p", raw_mmap.pid)
    gdb.load()
    gdbs = own_of_gdb(gdb, raw_mmap)
    gdb.do("whomap start -o one.trace")
    assert "going on already" in gdb.do("whomap start")
    assert "whomap stop ends it" in gdb.do("whomap report")
    gdb.load()  # harmless, and the capture goes on
    gdb.do("continue &")
    wait_captured(gdb, 50)
    gdb.send("whomap stop")
    gdb.read("next: whomap match")
    gdb.wait_running(raw_mmap.pid)  # it was continued
    assert set(differences(raw_mmap.code, code_of(raw_mmap.pid))) <= gdbs
    assert check_calls(read_trace(tmp_path / "one.trace"), raw_mmap.log) > 20
    stop(gdb)
    for _ in range(3):  # nothing runs in between
        assert "by stubs" in gdb.do("whomap start -o two.trace --force")
        assert differences(raw_mmap.code, code_of(raw_mmap.pid))
        gdb.do("whomap stop")
        assert differences(raw_mmap.code, code_of(raw_mmap.pid)) == []
    gdb.quit()
    wait_until(lambda: is_running(raw_mmap.pid), "the process to run on")
    assert "nothing is known to be changed" in run("repair", "-p", raw_mmap.pid).stdout or \
        "had its own code already" in run("repair", "-p", raw_mmap.pid).stdout


@pytest.mark.parametrize("how", ["detach", "quit", "kill"])
def test_a_gdb_that_goes_away_without_whomap_stop(targets, prompt, under_load, tmp_path, how):
    """8 threads map memory meanwhile; the supervisor outside takes the stubs out. (Without sites that have no stub: a hit of
    an ordinary breakpoint would be fatal when GDB is killed.)"""
    process = targets.start(under_load, "none", 500)
    process.code = code_of(process.pid)
    for _ in range(2):
        gdb = prompt("-p", process.pid)
        gdb.load()
        gdbs = own_of_gdb(gdb, process) if how == "kill" else set()
        assert "by stubs" in gdb.do("whomap start -o away.trace --force --syscalls mmap,munmap")
        gdb.do("continue &")
        wait_captured(gdb, 100)
        if how == "detach":
            stop(gdb)
            assert "GDB has let go of it" in gdb.do("detach")
        elif how == "quit":
            gdb.quit()
        else:
            gdb.kill()
        wait_until(lambda: runs_again(process.pid), "the process to run on")
        wait_until(lambda: set(differences(process.code, code_of(process.pid))) <= gdbs, "the code as found")
        wait_until(lambda: not is_locked(process.pid), "the supervisor to end")
        process.stdin.write(b"r")
        process.stdin.flush()
        rounds, good, failures, calls = map(int, process.stdout.readline().split())
        assert failures == 0 and calls > 0
        wait_until(lambda: '"type":"end"' in (tmp_path / "away.trace").read_text(), "the trace to be finished")


def is_locked(pid):
    """Does somebody hold the lock on changing the process's code?"""
    folder = pathlib.Path(os.environ.get("WHOMAP_STATE_DIR") or
                          ("/run/whomap" if os.geteuid() == 0 else f"/run/user/{os.getuid()}/whomap"))
    for path in folder.glob(f"{pid}-*.lock"):
        with open(path, "rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
    return False


EXECS = r"""
#include <poll.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void) {
  struct pollfd order = {0, POLLIN, 0};
  puts("ready"); fflush(stdout);
  while (poll(&order, 1, 5) == 0)
    munmap(mmap(NULL, 65536, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 65536);
  char byte;
  if (read(0, &byte, 1) == 1) execl("/proc/self/exe", "again", (char *)NULL);
}
"""


def test_ends_by_hits_with_the_process_and_at_an_exec(targets, raw_mmap, prompt, compile_c, tmp_path):
    gdb = prompt("-p", raw_mmap.pid)
    gdb.load()
    gdb.do("whomap start -o hits.trace --max-hits 20")
    gdb.send("continue &")
    gdb.read("the capture has ended")
    gdb.send("interrupt")
    gdb.read("next: whomap match")
    assert differences(raw_mmap.code, code_of(raw_mmap.pid)) == []
    assert read_trace(tmp_path / "hits.trace")[-1]["reason"] == "hits"
    gdb.do("whomap start -o end.trace")
    gdb.do("continue &")
    wait_captured(gdb, 10)
    raw_mmap.kill()
    gdb.read("the process has ended")
    assert "no capture is going on" in gdb.do("whomap status")
    assert read_trace(tmp_path / "end.trace")[-1]["reason"] == "target-exited"

    process = targets.start(compile_c(EXECS))
    gdb.do(f"attach {process.pid}")
    gdb.do("whomap start -o exec.trace")
    gdb.do("continue &")
    wait_captured(gdb, 10)
    process.stdin.write(b"e")
    process.stdin.flush()
    assert "Cannot insert" not in gdb.read("another program now (exec)")
    gdb.read("next: whomap match")
    assert read_trace(tmp_path / "exec.trace")[-1]["reason"] == "target-exec"
    assert "No breakpoints" in gdb.do("info breakpoints")
    gdb.do("detach")
    assert process.stdout.readline() == b"ready\n"
    wait_until(lambda: runs_again(process.pid), "the new program to run")


def test_what_cannot_be_done_is_said(raw_mmap, prompt, tmp_path):
    gdb = prompt()
    gdb.load()
    for command in ("whomap plan", "whomap start"):
        assert "no process: attach" in gdb.do(command)
    assert "no capture is going on" in gdb.do("whomap stop")
    assert "nothing was captured yet" in gdb.do("whomap report")
    assert "see: help whomap start" in gdb.do("whomap start --bogus")
    assert "see: help whomap start" in gdb.do("whomap start -d 0")
    for command in ("", " plan", " start", " status", " stop", " report"):
        text = gdb.do("help whomap" + command)
        assert ("Usage: whomap" in text or "whomap start" in text) and "not documented" not in text
    gdb.do(f"attach {raw_mmap.pid}")
    assert "mmap" in gdb.do("whomap plan --module libpool")
    (tmp_path / "there").write_text("")
    assert "there exists" in gdb.do("whomap start -o there") and differences(raw_mmap.code, code_of(raw_mmap.pid)) == []
    gdb.do("continue &")
    assert "interrupt it first" in gdb.do("whomap start")
    stop(gdb)
    gdb.do("set follow-fork-mode child")
    assert "follow-fork-mode parent" in gdb.do("whomap start")
    gdb.do("set follow-fork-mode parent")
    assert "0 sites by stubs" in gdb.do("whomap start --no-stubs -o plain.trace")
    gdb.do("continue &")
    wait_captured(gdb, 10)
    gdb.send("whomap stop")
    gdb.read("next: whomap match")
    stop(gdb)
    # GDB takes its own breakpoint in the loader out when it has stopped all threads.
    wait_until(lambda: differences(raw_mmap.code, code_of(raw_mmap.pid)) == [], "the code as it was")
