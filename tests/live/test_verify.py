# SPDX-License-Identifier: Apache-2.0
"""whomap verify on real processes: examples/arena is the service of the investigation, with the leak, with the fix
that only logs, and with the one that works. Intervals are short, so the rate that can be excluded is high."""

import json
import os
import re
import signal
import subprocess

import pytest

from support import BUILD, ROOT, WHOMAP, code_of, differences, is_running, run, run_on_tty, status_field, wait_until

LIMITS = ("--max-delta", "5M", "--max-rate", "300M")
STEP = "64"  # KiB; 200 requests hold 28 MiB in the arena, 14 of them since the 100th
QUICK = ("--interval", "0.5", *LIMITS)


@pytest.fixture(scope="module")
def arena(tmp_path_factory):
    program = tmp_path_factory.mktemp("arena") / "arena"
    subprocess.run(["gcc", "-O2", "-g", ROOT / "examples/arena/arena.c", "-o", program], check=True)
    return program


@pytest.fixture
def fifo(tmp_path):
    return tmp_path / "fifo"


def operation(fifo):
    return f"echo > {fifo}; read done < {fifo}.done"


def exercise(fifo):
    """200 operations by 20 shells."""
    return ("--exercise", f"for i in 0 1 2 3 4 5 6 7 8 9; do {operation(fifo)}; done", "--count", 20, "--operations-per-run", 10)


def verify(*arguments, **options):
    return run("verify", *arguments, **options)


def verify_arena(arena, fifo, mode, *more, **options):
    return verify(*exercise(fifo), "--ready", f"test -p {fifo}", *QUICK, *more, "--", arena, mode, fifo, STEP, **options)


def ci_line(text):
    (line,) = [line for line in text.splitlines() if line.startswith("whomap verify: ")]
    return line


def one_line(result, status, *words):
    assert result.returncode == status, result.stderr
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("whomap: ")
    for word in words:
        assert word in line, line


def processes_with(text):
    """Pids of processes whose command line has this text, zombies not."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as line:
                if text.encode() in line.read():
                    found.append(int(pid))
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found


def guards_of(pid):
    children = subprocess.run(["ps", "-o", "pid=,comm=", "--ppid", str(pid)], capture_output=True, text=True).stdout
    return [int(line.split()[0]) for line in children.splitlines() if "whomap-guard" in line]


# The verdicts.

def test_the_placebo_is_caught_although_it_logs(arena, fifo):
    result = verify_arena(arena, fifo, "placebo")
    assert result.returncode == 1, result.stdout + result.stderr
    assert "runtime patched" in result.stderr  # the started program's output goes where messages go
    line = ci_line(result.stdout)
    assert line.startswith("whomap verify: not-fixed: ") and "per operation" in line and "/min [" in line
    assert result.stdout.endswith(line + "\n")


def test_the_real_fix_passes_and_the_control_shows_that_it_counts(arena, fifo):
    result = verify_arena(arena, fifo, "fixed", "--control", f"exec {arena} leak {fifo} {STEP}", "--format", "json")
    assert result.returncode == 0, result.stdout + result.stderr
    report = json.loads(result.stdout)
    assert report["format"] == "whomap-verify" and report["version"] == 1
    assert report["verdict"]["class"] == "fixed" and report["verdict"]["exit_status"] == 0
    assert "the control grew" in report["verdict"]["text"]
    assert report["control"]["judgement"]["class"] == "not-fixed"
    for variant in (report["subject"], report["control"]):
        points = variant["points"]
        assert [point["succeeded"] for point in points] == [0, 10, 20]
        assert variant["exercise"]["succeeded"] == 20 and variant["exercise"]["failed"] == 0
        assert len(variant["readings"]) > 10
        for point in points:
            for field in ("rss_bytes", "rss_anon_bytes", "rss_file_bytes", "rss_shmem_bytes", "swap_bytes", "page_table_bytes",
                          "lazy_free_bytes", "mappings", "threads"):
                assert isinstance(point[field], int), field
            assert point["rss_bytes"] == point["rss_anon_bytes"] + point["rss_file_bytes"] + point["rss_shmem_bytes"]
    assert ci_line(result.stderr).startswith("whomap verify: fixed: ")
    assert re.findall(r"point (\d) of 3", result.stderr) == ["1", "2", "3", "1", "2", "3"]


def test_a_control_that_passes_too_proves_nothing(arena, fifo):
    result = verify_arena(arena, fifo, "fixed", "--control", f"exec {arena} fixed {fifo} {STEP}")
    assert result.returncode == 1, result.stdout + result.stderr
    assert ci_line(result.stdout).startswith("whomap verify: proves-nothing: ")


def test_a_running_process_and_a_baseline_across_a_restart(arena, fifo, targets, tmp_path):
    saved = tmp_path / "before.json"
    leaking = targets.start(arena, "leak", fifo, STEP)
    before = verify("-p", leaking.pid, *exercise(fifo), *QUICK, "--save", saved)
    assert before.returncode == 1, before.stdout
    assert is_running(leaking.pid)
    assert oct(saved.stat().st_mode & 0o777) == "0o600"
    leaking.kill()
    leaking.wait()
    fixed = targets.start(arena, "fixed", fifo, STEP)
    after = verify("-p", fixed.pid, *exercise(fifo), *QUICK, "--baseline", saved)
    assert after.returncode == 0, after.stdout
    assert "the baseline grew by" in ci_line(after.stdout)
    other = verify("-p", fixed.pid, "--exercise", operation(fifo) + " ", *QUICK, "--baseline", saved, "-q")
    assert other.returncode == 7 and "another exercise" in ci_line(other.stdout)
    assert other.stderr == ""


def test_growth_in_shared_memory_has_moved(targets, compile_c):
    program = compile_c("""
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void) {
  puts("ready"); fflush(stdout);
  for (;;) {
    char *memory = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memset(memory, 1, 1 << 20);
    usleep(10000);
  }
}""")
    result = verify("-p", targets.start(program).pid, *QUICK)
    assert result.returncode == 1, result.stdout
    assert ci_line(result.stdout).startswith("whomap verify: moved: shared memory grew")


def test_an_idle_process_proves_nothing(targets):
    result = verify("-p", targets.start("sleep", "100", ready=False).pid, *QUICK)
    assert result.returncode == 7, result.stdout
    assert "idle" in ci_line(result.stdout)


def test_an_exercise_that_does_not_reach_the_process(targets):
    result = verify("-p", targets.start("sleep", "100", ready=False).pid, "--exercise", "true", *QUICK)
    assert result.returncode == 7, result.stdout
    assert "does not reach" in ci_line(result.stdout)


def test_a_failing_exercise_and_too_few_operations(arena, fifo):
    assert verify_arena(arena, fifo, "fixed", "--exercise", "x").returncode == 2  # given twice
    for command, count, words in (("echo no such host; exit 6", "200", 'exit status 6, "no such host"'),
                                  ("kill -9 $$", "200", "killed by signal 9"), (operation(fifo), "50", "50 operations")):
        result = verify("--exercise", command, "--count", count, "--ready", f"test -p {fifo}", *QUICK, "--", arena, "fixed", fifo, STEP)
        assert result.returncode == 7, result.stdout
        assert words in ci_line(result.stdout)


def test_an_exercise_that_hangs_is_ended_with_all_it_started(arena, fifo):
    result = verify("--exercise", "sleep 98765; true", "--exercise-timeout", "0.3", "--count", "4", "--ready", f"test -p {fifo}",
                    *QUICK, "--", arena, "fixed", fifo, STEP)
    assert result.returncode == 7 and "not done after 0.3 s" in ci_line(result.stdout)
    assert processes_with("sleep\x0098765") == []


def test_a_tree_is_summed(targets, compile_c):
    program = compile_c("""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(void) {
  if (fork() == 0) for (;;) { memset(malloc(1 << 20), 1, 1 << 20); usleep(10000); }
  puts("ready"); fflush(stdout);
  for (;;) pause();
}""")
    process = targets.start(program)
    child = int(subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True).stdout)
    try:
        tree = verify("-p", process.pid, "--tree", "--format", "json", *QUICK)
        assert tree.returncode == 1, tree.stderr
        report = json.loads(tree.stdout)
        assert [point["processes"] for point in report["subject"]["points"]] == [2, 2, 2]
        assert report["subject"]["points"][0]["members"][0]["pid"] == child
        alone = verify("-p", process.pid, *QUICK)
        assert alone.returncode == 7, alone.stdout  # the parent does nothing
    finally:
        os.kill(child, signal.SIGKILL)


# What is known early is said early, and what was measured is kept.

def test_what_will_spoil_the_verdict_is_said_before_the_first_point(arena, fifo, targets, tmp_path):
    saved = tmp_path / "before.json"
    process = targets.start(arena, "fixed", fifo, STEP)
    verify("-p", process.pid, *exercise(fifo), *QUICK, "--save", saved)
    later = verify("-p", process.pid, "--exercise", operation(fifo), "--count", 50, *QUICK, "--baseline", saved)
    before_first_point = later.stderr[:later.stderr.index("point 1 of 3")]
    for words in ("50 operations", "the baseline measured another exercise", "the baseline was fixed itself"):
        assert words in before_first_point, later.stderr


def test_an_exercise_that_always_fails_is_given_up(targets):
    process = targets.start("sleep", "100", ready=False)
    result = verify("-p", process.pid, "--exercise", "echo refused; exit 7", "--interval", "300", timeout=60)
    assert result.returncode == 7, result.stdout
    assert "an exercise failed: exit status 7" in result.stderr
    assert '10 of 10 times and was given up; the first time: exit status 7, "refused"' in ci_line(result.stdout)


def test_that_the_load_does_not_arrive_is_said_at_the_middle_point(targets):
    process = targets.start("sleep", "100", ready=False)
    wait_until(lambda: open(f"/proc/{process.pid}/wchan").read().endswith("nanosleep"), "it to sleep")  # it has started up
    for more, words in (((), "so far: the process was idle"), (("--exercise", "true"), "so far: the exercise does not reach")):
        result = verify("-p", process.pid, *more, *QUICK)
        assert result.returncode == 7
        assert words in result.stderr[:result.stderr.index("point 3 of 3")], result.stderr


@pytest.mark.parametrize("option", ["--exercise", "--control", "--ready"])
def test_commands_that_cannot_run_are_refused_at_once(option, targets, tmp_path):
    pid = targets.start("sleep", "100", ready=False).pid
    more = ("--control", "sleep 9") if option == "--ready" else ()
    for command, words in (("/nonexistent/server --port 1", "/nonexistent/server"), ("env A=1 /nonexistent/server", "/nonexistent/server"),
                           ("if true; then", "does not understand")):
        one_line(verify("-p", pid, option, command, *more, cwd=tmp_path), 2, option, words)


def test_the_subject_is_kept_when_the_control_does_not_come_up(arena, fifo, tmp_path):
    saved = tmp_path / "kept.json"
    result = verify(*exercise(fifo), "--ready", f"test -p {fifo} && test $WHOMAP_VARIANT = subject", "--ready-timeout", "0.5", *QUICK,
                    "--control", "sleep 98762", "--save", saved, "--", arena, "fixed", fifo, STEP)
    assert result.returncode == 7, result.stdout
    line = ci_line(result.stdout)
    assert "the control could not be measured: the control was not ready after 0.5 s" in line and "the subject alone: anonymous" in line
    kept = json.loads(saved.read_text())
    assert len(kept["subject"]["points"]) == 3 and kept["control"] is None and "not ready" in kept["control_problem"]
    assert processes_with("sleep\x0098762") == []


def test_a_control_beside_a_running_subject_gets_a_hint(arena, fifo, targets):
    process = targets.start(arena, "fixed", fifo, STEP)
    result = verify("-p", process.pid, *exercise(fifo), *QUICK, "--control", "sh -c 'exit 98'")
    assert result.returncode == 7, result.stdout
    assert "exit status 98" in ci_line(result.stdout) and "same port" in ci_line(result.stdout)
    assert "goes on while the control is measured" in result.stderr[:result.stderr.index("point 1 of 3")]


# Memory that no Rss counts, and mappings.

HOLDER = r"""
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>
static char block[1 << 20];
static int segments[1000], count;
static void remove_segments(void) { while (count > 0) shmctl(segments[--count], IPC_RMID, NULL); }
int main(int argument_count, char **arguments) {
  (void)argument_count;
  char kind = arguments[1][0];
  int file = memfd_create("pool", 0);
  memset(block, 1, sizeof block);
  if (kind == 's') { alarm(0); atexit(remove_segments); }
  puts("ready"); fflush(stdout);
  for (int i = 0; i < 600; ++i) {
    if (kind == 'm' && write(file, block, sizeof block) < 0) return 1;
    if (kind == 's') {
      segments[count++] = shmget(IPC_PRIVATE, sizeof block, 0600);
      char *memory = shmat(segments[count - 1], NULL, 0);
      if (memory == (char *)-1) return 1;
      memset(memory, 1, sizeof block);
      shmdt(memory);
    }
    for (int j = 0; kind == 'v' && j < 20; ++j)  /* no two of these can be merged */
      if (mmap(NULL, 4096, j % 2 ? PROT_NONE : PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) return 1;
    for (volatile int j = 0; j < 1000000; ++j) { }
    usleep(10000);
    char nothing;
    if (kind == 's' && i > 200) { fflush(stdout); if (read(0, &nothing, 1) == 0) break; }
  }
  for (char nothing; read(0, &nothing, 1) > 0;) { }
  return 0;
}
"""


@pytest.mark.parametrize("kind", ["memfd", "sysv"])
def test_memory_that_is_held_but_not_mapped_has_moved(targets, compile_c, kind):
    process = targets.start(compile_c(HOLDER), kind)
    result = verify("-p", process.pid, *QUICK)
    process.stdin.close()  # it removes its segments
    process.wait()
    assert result.returncode == 1, result.stdout
    assert ci_line(result.stdout).startswith("whomap verify: moved: memory in memfds, open tmpfs files and SysV segments grew by")
    assert "memfd, shm" in result.stdout


def test_mappings_that_grow_towards_the_limit_are_not_fixed(targets, compile_c):
    process = targets.start(compile_c(HOLDER), "vmas")
    result = verify("-p", process.pid, "--samples", "6", "--interval", "0.3", *LIMITS)
    assert result.returncode == 1, result.stdout
    assert ci_line(result.stdout).startswith("whomap verify: moved: mappings grew from ")


# A tree whose members are orphaned on purpose.

DAEMONS = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(void) {
  if (fork() == 0) {
    setsid();
    if (fork() != 0) _exit(0);
    for (;;) { memset(malloc(1 << 20), 1, 1 << 20); usleep(10000); }
  }
  puts("ready"); fflush(stdout);
  for (;;) { for (volatile int i = 0; i < 1000000; ++i) { } usleep(10000); }
}
"""


def test_a_double_forked_child_of_a_started_program_is_followed(compile_c):
    result = verify("--tree", *QUICK, "--format", "json", "--", compile_c(DAEMONS))
    assert result.returncode == 1, result.stdout + result.stderr
    report = json.loads(result.stdout)
    assert [point["processes"] for point in report["subject"]["points"]][1:] == [2, 2]
    assert report["verdict"]["class"] == "not-fixed"


def test_a_double_forked_child_of_a_running_process_is_named(targets, compile_c):
    program = compile_c(DAEMONS)
    process = targets.start(program)
    def given_to_init():
        return [pid for pid in processes_with(str(program)) if pid != process.pid and status_field(pid, "PPid") == "1"]

    orphans = wait_until(given_to_init, "the end of the process in between")
    try:
        result = verify("-p", process.pid, "--tree", *QUICK)
        assert f"note: process {orphans[0]} may come from the tree and is not counted" in result.stderr, result.stderr
        assert "-- CMD" in result.stdout
    finally:
        for pid in orphans:
            os.kill(pid, signal.SIGKILL)


# A target that does not stay.

@pytest.mark.parametrize("ends", ["exit 4", "kill -9 $$", "exec sleep 99"])
def test_a_target_that_ends_or_becomes_another_is_invalid(ends):
    result = verify("--interval", "0.6", "--", "sh", "-c", f"sleep 0.8; {ends}")
    assert result.returncode == 3, result.stdout
    line = ci_line(result.stdout)
    assert line.startswith("whomap verify: invalid: ")
    assert {"exit 4": "exit status 4", "kill -9 $$": "signal 9", "exec sleep 99": "exec'd"}[ends] in line


def test_a_target_that_is_gone_or_never_ready():
    one_line(verify("--", "/nonexistent/program"), 2, "/nonexistent/program")
    result = verify("--ready", "false", "--ready-timeout", "0.5", "--", "sleep", "98764")
    one_line(result, 3, "not ready", "--ready-timeout")
    one_line(verify("--ready", "false", "--", "sh", "-c", "exit 9"), 3, "exit status 9")
    assert processes_with("sleep\x0098764") == []


def test_a_stopped_process_is_refused(targets):
    process = targets.start("sleep", "100", ready=False)
    os.kill(process.pid, signal.SIGSTOP)
    wait_until(lambda: status_field(process.pid, "State")[0] == "T", "the stop")
    one_line(verify("-p", process.pid), 3, "is stopped", "kill -CONT")


# Ending early. Started programs must not linger.

def start_verify(arena, fifo, wrapper):
    """A verify in the middle of its work; its program is a grandchild when `wrapper`."""
    command = ["sh", "-c", f"{arena} fixed {fifo}; true"] if wrapper else [arena, "fixed", fifo]
    return subprocess.Popen([WHOMAP, "verify", "--exercise", operation(fifo), "--ready", f"test -p {fifo}", "--interval", "60",
                             "--format", "json", "--", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_says_what_was_measured(arena, fifo, number):
    process = start_verify(arena, fifo, wrapper=True)
    line = ""
    while "point 1 of 3" not in line:
        line = process.stderr.readline()
        assert line, "verify ended early"
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    report = json.loads(out)
    assert report["verdict"]["class"] == "interrupted" and len(report["subject"]["points"]) == 1
    assert "after 1 of 3 points" in ci_line(err)
    assert processes_with(str(fifo)) == []


@pytest.mark.parametrize("wrapper", [False, True])
def test_kill_9_leaves_nothing_behind(arena, fifo, wrapper):
    process = start_verify(arena, fifo, wrapper)
    line = ""
    while "point 1 of 3" not in line:
        line = process.stderr.readline()
        assert line, "verify ended early"
    guards = guards_of(process.pid)
    assert len(guards) == 2  # the program's and the exercise's
    process.kill()
    process.communicate()  # its pipes close: nobody else holds them
    wait_until(lambda: processes_with(str(fifo)) == [], "the end of the program")
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in guards), "the end of the guards")


def test_a_program_that_leaves_its_group_is_ended_too(tmp_path):
    result = verify("--interval", "0.3", "--", "sh", "-c", "setsid sleep 98763 & sleep 99")
    assert result.returncode == 7, result.stdout
    assert processes_with("sleep\x0098763") == []


# Output.

def test_on_a_terminal_there_is_a_plot_and_colour_unless_unwanted(arena, fifo):
    command = ["verify", *exercise(fifo), "--ready", f"test -p {fifo}", *QUICK, "--", arena, "placebo", fifo, STEP]
    status, text = run_on_tty(*command)
    assert status == 1
    assert "\x1b[1;31mnot-fixed\x1b[0m" in text and "MiB |" in text and "o" in text
    status, plain = run_on_tty(*command, env={"NO_COLOR": "1"})
    assert status == 1 and "\x1b" not in plain and "MiB |" in plain
    for line in plain.splitlines():
        assert len(line) <= 80 or line.startswith(("whomap verify: ", "whomap: point ")), line


def test_off_a_terminal_there_is_neither(arena, fifo):
    result = verify_arena(arena, fifo, "placebo")
    assert "\x1b" not in result.stdout + result.stderr and " |" not in result.stdout


def test_files_are_checked_before_the_measurement(tmp_path, targets):
    precious = tmp_path / "precious"
    precious.write_text("precious")
    pid = targets.start("sleep", "100", ready=False).pid
    for option in ("-o", "--save"):
        one_line(verify("-p", pid, option, precious), 8, "exists already", "--force")
        one_line(verify("-p", pid, option, "/nonexistent/file"), 8, "/nonexistent/file")
    assert precious.read_text() == "precious"
    one_line(verify("-p", pid, "--baseline", tmp_path / "missing"), 6, "missing")
    for name, content in {"empty": b"", "binary": os.urandom(999), "deep": b"[" * 100000, "other": b'{"format":"whomap-trace","version":1}',
                          "newer": b'{"format":"whomap-verify","version":99}', "bare": b'{"format":"whomap-verify","version":1}',
                          "negative": b'{"format":"whomap-verify","version":1,"subject":{"target":{"pid":-1}}}'}.items():
        (tmp_path / name).write_bytes(content)
        one_line(verify("-p", pid, "--baseline", tmp_path / name), 6, name)


def test_standard_output_that_cannot_be_written(targets):
    with open("/dev/full", "w") as full:
        result = subprocess.run([WHOMAP, "verify", "-p", str(targets.start("sleep", "100", ready=False).pid), "--interval", "0.1", "-q"],
                                stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 8 and len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("arguments", [
    (), ("--",), ("--", ""), ("-p",), ("-p", "x"), ("-p", "0"), ("-p", "1", "--", "true"), ("-p", "1", "extra"), ("-p", "1", "--bogus"),
    ("-p", "1", "--samples", "2"), ("-p", "1", "--samples", "-3"), ("-p", "1", "--samples", "99999999999999999999"),
    ("-p", "1", "--interval", "30s"), ("-p", "1", "--samples", "3x"), ("-p", "1", "--baseline", "x", "--control", "true"),
    ("-p", "1", "--interval", "0"), ("-p", "1", "--interval", "nan"), ("-p", "1", "--interval", "1e9"), ("-p", "1", "--interval", "-1"),
    ("-p", "1", "--max-delta", "0"), ("-p", "1", "--max-delta", "100X"), ("-p", "1", "--max-rate", "-1"),
    ("-p", "1", "--max-delta", "99999999999T"), ("-p", "1", "--count", "5"), ("-p", "1", "--exercise", ""), ("-p", "1", "--exercise", " "),
    ("-p", "1", "--exercise", "true", "--count", "0"), ("-p", "1", "--exercise", "true", "--count", "x"),
    ("-p", "1", "--exercise", "true", "--operations-per-run", "0"), ("-p", "1", "--exercise", "true", "--exercise-timeout", "0"),
    ("-p", "1", "--format", "xml"), ("-p", "1", "--color", "maybe"), ("-p", "1", "--gone", "("), ("-p", "1", "--gone", ""),
    ("-p", "1", "--present", ".*"), ("-p", "1", "--ready", "true"), ("-p", "1", "--save", "x", "-o", "x"),
])
def test_wrong_usage(arguments, tmp_path):
    one_line(verify(*arguments, cwd=tmp_path), 2)
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_number_is_named_with_what_it_takes():
    one_line(verify("-p", "1", "--interval", "30s"), 2, "--interval is '30s'", "seconds from 0.1 to 86400", "without a unit")
    one_line(verify("-p", "1", "--exercise", "true", "--count", "2k"), 2, "--count is '2k'", "whole number from 1 to 1000000")
    one_line(verify("-p", "1", "--max-delta", "100MB"), 2, "--max-delta is '100MB'", "100M")


def test_a_regular_expression_of_a_hostile_kind_is_harmless():
    one_line(verify("-p", "1", "--gone", "(" * 5000 + ")" * 5000), 2)
    one_line(verify("-p", "1", "--gone", "((((((x{100}){100}){100}){100}){100}){100})"), 2)


# Effect, not log: with a trace beside the exercise.

def test_gone_is_shown_by_the_control(arena, fifo, tmp_path):
    limits = ("--interval", "2", *LIMITS)
    result = verify(*exercise(fifo), "--ready", f"test -p {fifo}", *limits, "--gone", "^arena_extend$", "--present",
                    "^run_without_arena$", "--control", f"exec {arena} leak {fifo} {STEP}", "--format", "json", "--", arena, "fixed", fifo, STEP,
                    env={"TMPDIR": str(tmp_path)})
    assert result.returncode == 0, result.stdout + result.stderr
    report = json.loads(result.stdout)
    gone, present = report["effects"]
    assert gone["state"] == "passed" and "the unfixed variant showed 1 stack" in gone["text"]
    assert present["state"] == "passed" and "run_without_arena" in present["text"]
    (finding,) = [each for each in report["control"]["traced"]["findings"] if each["kind"] == "gone"]
    assert finding["stacks"] == 1 and finding["growth_bytes"] >= 12 << 20
    assert report["subject"]["traced"]["lost"] == 0
    assert not list(tmp_path.glob("whomap-verify-*"))  # the private folder is gone


def test_a_path_that_still_maps_is_not_gone(targets):
    process = targets.start(BUILD / "examples" / "raw_mmap", 100)
    result = verify("-p", process.pid, "--interval", "1.5", "--max-rate", "1G", "--gone", "pool_grow", "--format", "json")
    assert result.returncode == 1, result.stdout + result.stderr
    (effect,) = json.loads(result.stdout)["effects"]
    assert effect["state"] == "failed" and "1 stack with /pool_grow/" in effect["text"]
    # The trace's own buffer, in which it has recorded calls, is not the target's.
    assert {point["rss_shmem_bytes"] for point in json.loads(result.stdout)["subject"]["points"]} == {0}
    wait_until(lambda: is_running(process.pid), "the target to run untraced")


def test_gone_without_a_control_is_not_proven(arena, fifo):
    result = verify(*exercise(fifo), "--ready", f"test -p {fifo}", "--interval", "2", *LIMITS, "--gone", "arena_extent",
                    "--", arena, "fixed", fifo, STEP)
    assert result.returncode == 7, result.stdout
    assert "is not proven" in ci_line(result.stdout) and "--control" in ci_line(result.stdout)


def test_a_trace_that_cannot_be_made_is_said_before_the_first_point(targets):
    process = targets.start(BUILD / "examples" / "raw_mmap", 100)
    tracer = subprocess.Popen(["strace", "-o", "/dev/null", "-p", str(process.pid)], stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: status_field(process.pid, "TracerPid") == str(tracer.pid), "strace")
        one_line(verify("-p", process.pid, *QUICK, "--gone", "x"), 3, "--gone", "already traced by strace")
    finally:
        tracer.terminate()
        tracer.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_ended_while_it_traces_the_target_is_let_go(targets, number):
    process = targets.start(BUILD / "examples" / "raw_mmap", 100)
    code = code_of(process.pid)
    verifying = subprocess.Popen([WHOMAP, "verify", "-p", str(process.pid), "--interval", "3", "--gone", "x"],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    line = ""
    while "tracing until the last point" not in line:
        line = verifying.stderr.readline()
        assert line, "verify ended early"
    assert differences(code, code_of(process.pid)) != []  # the stubs
    verifying.send_signal(number)
    verifying.communicate(timeout=60)
    assert verifying.returncode == (130 if number == signal.SIGINT else -9)
    wait_until(lambda: is_running(process.pid), "the target to run untraced")
    wait_until(lambda: not processes_with(f"trace\0-p\0{process.pid}\0"), "the end of the trace")
    wait_until(lambda: differences(code, code_of(process.pid)) == [], "its own code")


GROWER = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int count, char **arguments) {
  long after_ms = count > 2 ? atol(arguments[2]) : 0, at = 0;
  int file = -1; off_t end = 0;
  if (!strcmp(arguments[1], "file")) { file = open(arguments[3], O_RDWR | O_CREAT | O_TRUNC, 0600); unlink(arguments[3]); }
  puts("ready"); fflush(stdout);
  for (;; at += 50) {
    for (volatile int i = 0; i < 3000000; i++) { }
    if (!strcmp(arguments[1], "step") && at >= after_ms) { memset(malloc(30 << 20), 1, 30 << 20); after_ms += 60000; }
    if (file >= 0) { char *p; if (ftruncate(file, end + (1 << 20))) return 1;
      p = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, file, end); memset(p, 1, 1 << 20); end += 1 << 20; }
    poll(0, 0, 50);
  }
}
"""


def test_a_late_step_is_not_fixed(targets, compile_c):
    """30 MB in the last part of a window of 6 s: the slope of what came before is nothing."""
    process = targets.start(compile_c(GROWER), "step", 8000)
    result = verify("-p", process.pid, "--interval", "6", "-q")
    assert result.returncode in (1, 7), result.stdout


def test_growing_file_pages_are_not_fixed(targets, compile_c, tmp_path):
    if subprocess.run(["stat", "-f", "-c", "%T", tmp_path], capture_output=True, text=True).stdout.strip() == "tmpfs":
        pytest.skip("the temporary folder is a tmpfs: its pages count as shared memory")
    process = targets.start(compile_c(GROWER), "file", 0, tmp_path / "pages")
    result = verify("-p", process.pid, "--interval", "3", "-q")
    assert result.returncode == 1 and "not-same-leak" in result.stdout, result.stdout


def test_a_target_that_is_stopped_in_between_is_invalid(targets, compile_c):
    process = targets.start(compile_c(GROWER), "flat")
    checker = subprocess.Popen([WHOMAP, "verify", "-p", str(process.pid), "--interval", "3"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    checker.stderr.readline()  # the first point
    process.send_signal(signal.SIGSTOP)
    out, _ = checker.communicate(timeout=60)
    assert checker.returncode == 3 and "stopped" in out
    process.send_signal(signal.SIGCONT)


def test_a_simple_control_is_the_program_and_not_its_shell(arena, fifo):
    control = f"{arena} leak {fifo} {STEP}"
    result = verify_arena(arena, fifo, "fixed", "--control", control)
    assert result.returncode == 0, result.stdout
    assert "(arena)" in result.stdout and "(sh)" not in result.stdout and "(dash)" not in result.stdout
