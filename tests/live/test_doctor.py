# SPDX-License-Identifier: Apache-2.0
"""whomap doctor, and the threads that would notice an attach (case D08)."""

import json
import os
import signal
import subprocess

import pytest

from support import BUILD, is_running, run, run_on_tty, status_field, wait_until

WAITERS = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>
static void *wait_for_events(void *unused) {
  struct epoll_event event;
  (void)unused;
  pthread_setname_np(pthread_self(), "events");
  epoll_wait(epoll_create1(0), &event, 1, -1);
  if (errno == EINTR) _exit(42);  /* what a fragile program does */
  return NULL;
}
int main(int count, char **arguments) {
  sigset_t set;
  pthread_t thread;
  int number;
  (void)count;
  if (strcmp(arguments[1], "epoll") == 0) pthread_create(&thread, NULL, wait_for_events, NULL);
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  if (strcmp(arguments[1], "sigwait") == 0) sigprocmask(SIG_BLOCK, &set, NULL);
  puts("ready"); fflush(stdout);
  if (strcmp(arguments[1], "sigwait") == 0) for (;;) sigwait(&set, &number);
  for (;;) pause();
}
"""


@pytest.fixture
def waiter(targets, compile_c):
    program = compile_c(WAITERS)

    def start(kind, call):
        process = targets.start(program, kind)
        numbers = {"epoll": ("232", "281"), "sigwait": ("128",), "none": ("34",)}[call]

        def waits():
            tasks = os.listdir(f"/proc/{process.pid}/task")
            found = [open(f"/proc/{process.pid}/task/{task}/syscall").read().split()[0] for task in tasks]
            return any(number in found for number in numbers)
        wait_until(waits, f"a thread in {call}")
        return process
    return start


def examine(*arguments, **options):
    result = run("doctor", "--format", "json", *arguments, **options)
    report = json.loads(result.stdout)
    assert report["format"] == "whomap-doctor" and report["exit_status"] == result.returncode
    assert report["can_trace"] == (result.returncode == 0)
    return report


def states(findings):
    return {each["check"]: each["state"] for each in findings}


def test_a_process_that_can_be_traced(waiter):
    process = waiter("plain", "none")
    report = examine("-p", process.pid)
    assert report["can_trace"], report
    assert set(states(report["machine"])) == {"kernel", "gdb", "stubs", "permission", "perf", "state", "room"}
    assert states(report["process"]["findings"]) == dict.fromkeys(
        ("process", "access", "sites", "seccomp", "waiting", "mappings", "left-over"), "ok")
    text = run("doctor", "-p", process.pid)
    assert text.returncode == 0 and text.stderr == ""
    assert text.stdout.splitlines()[-1].startswith(f"whomap doctor: process {process.pid} can be traced here")
    assert max(map(len, text.stdout.splitlines()[:-1])) <= 80
    assert is_running(process.pid) and status_field(process.pid, "TracerPid") == "0"


def test_the_machine_alone():
    report = examine()
    assert report["process"] is None and report["machine"][1]["text"].startswith("GDB ")


@pytest.mark.parametrize("gdb, words", [("/nonexistent/gdb", "/nonexistent/gdb"), ("/bin/false", "does not run")])
def test_a_gdb_that_is_missing_or_broken_is_status_5(gdb, words):
    report = examine(env={"WHOMAP_GDB": gdb})
    assert report["exit_status"] == 5
    (problem,) = [each for each in report["machine"] if each["state"] == "problem"]
    assert problem["check"] == "gdb" and words in problem["text"] and problem["remedy"]


def test_a_process_with_room_for_stubs_needs_no_gdb(waiter):
    process = waiter("plain", "none")
    report = examine("-p", process.pid)
    (sites,) = [each for each in report["process"]["findings"] if each["check"] == "sites"]
    without = examine("-p", process.pid, env={"WHOMAP_GDB": "/nonexistent/gdb"})
    if "all of these by the probe engine" in sites["text"]:
        assert without["can_trace"] and states(without["machine"])["gdb"] == "warning"
    else:
        assert without["exit_status"] == 5 and "GDB only" in sites["text"]


def test_a_gdb_without_python_or_without_the_plugin_is_named(tmp_path):
    for name, script, words in (("silent", "#!/bin/sh\necho whomap-runs\n", "no Python"),
                                ("other", "#!/bin/sh\necho whomap-runs whomap-facts 13.1 3.9.1\n", "does not load")):
        gdb = tmp_path / name
        gdb.write_text(script)
        gdb.chmod(0o755)
        (problem,) = [each for each in examine(env={"WHOMAP_GDB": str(gdb)})["machine"] if each["state"] == "problem"]
        assert words in problem["text"] and problem["remedy"], problem


def test_what_is_wrong_with_a_process_decides_before_the_machine(waiter):
    process = waiter("plain", "none")
    process.send_signal(signal.SIGSTOP)
    wait_until(lambda: status_field(process.pid, "State")[0] == "T", "the stop")
    report = examine("-p", process.pid, env={"WHOMAP_GDB": "/nonexistent/gdb"})
    assert report["exit_status"] == 3
    assert "kill -CONT" in report["process"]["findings"][-1]["remedy"]
    process.send_signal(signal.SIGCONT)
    process.kill()
    process.wait()
    assert examine("-p", process.pid)["exit_status"] == 3


def test_a_process_that_is_traced_already_names_its_tracer(waiter):
    process = waiter("plain", "none")
    tracer = subprocess.Popen(["strace", "-o", "/dev/null", "-p", str(process.pid)], stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: status_field(process.pid, "TracerPid") == str(tracer.pid), "strace")
        report = examine("-p", process.pid)
        assert report["exit_status"] == 3 and "strace" in report["process"]["findings"][-1]["text"]
    finally:
        tracer.terminate()
        tracer.wait()


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, which needs root")
def test_a_process_of_another_user_is_status_4(waiter, tmp_path):
    process = waiter("plain", "none")

    def nobody():
        os.setgid(65534)
        os.setuid(65534)
    if subprocess.run(["test", "-x", BUILD / "whomap"], preexec_fn=nobody).returncode != 0:
        pytest.skip("another user may not run the program where it was built")
    report = examine("-p", process.pid, preexec_fn=nobody, cwd="/")
    assert report["exit_status"] == 4
    assert "belongs to user" in report["process"]["findings"][-1]["text"]
    assert states(report["machine"])["room"] == "warning"


@pytest.mark.parametrize("kind, call, thread", [("epoll", "epoll_wait", "events"), ("sigwait", "rt_sigtimedwait", "program")])
def test_a_thread_that_would_notice_is_named_before_the_attach(waiter, tmp_path, kind, call, thread):
    process = waiter(kind, kind)
    (finding,) = [each for each in examine("-p", process.pid)["process"]["findings"] if each["check"] == "waiting"]
    assert finding["state"] == "warning" and call in finding["text"] and thread in finding["text"]
    refused = run("trace", "-p", process.pid, "-d", "1", "--no-attach-risk", cwd=tmp_path)
    assert refused.returncode == 4 and refused.stdout == ""
    (line,) = refused.stderr.splitlines()
    assert line.startswith("whomap: 1 thread waits in a call that returns EINTR") and call in line and "--no-attach-risk" in line
    assert list(tmp_path.glob("*.trace")) == []
    assert is_running(process.pid)  # it has noticed nothing

    traced = run("trace", "-p", process.pid, "-d", "1", "-o", tmp_path / "t", cwd=tmp_path)
    assert f"1 thread waits in a call that returns EINTR when a tracer attaches: {call} (" in traced.stderr.splitlines()[0]
    if kind == "epoll":  # the warning was true
        assert process.wait(60) == 42
    else:
        wait_until(lambda: is_running(process.pid), "the process to go on")


def test_without_a_risk_no_attach_risk_traces(waiter, tmp_path):
    process = waiter("plain", "none")
    result = run("trace", "-p", process.pid, "-d", "0.5", "--no-attach-risk", "-o", tmp_path / "t", cwd=tmp_path)
    assert result.returncode == 1, result.stderr  # nothing grew
    assert "EINTR" not in result.stderr


def test_colour_on_a_terminal_only():
    _, text = run_on_tty("doctor")
    assert "\x1b[1;32mok" in text
    _, plain = run_on_tty("doctor", env={"NO_COLOR": "1"})
    assert "\x1b" not in plain
    assert "\x1b" not in run("doctor").stdout


@pytest.mark.parametrize("arguments", [("-p",), ("-p", "x"), ("-p", "0"), ("extra",), ("--format", "xml"), ("--bogus",)])
def test_wrong_usage(arguments):
    result = run("doctor", *arguments)
    assert result.returncode == 2 and result.stdout == "" and len(result.stderr.splitlines()) == 1
