# SPDX-License-Identifier: Apache-2.0
"""What whomap itself is given: few descriptors, files that may not grow, state folders that are of no use or another
whomap's. It says so, doctor says the same beforehand, and the target goes on."""

import json
import os
import resource
import signal

import pytest

from stub_support import Trace
from support import EXAMPLES, code_of, differences, is_running, run


@pytest.fixture
def raw_mmap(targets):
    process = targets.start(EXAMPLES / "raw_mmap", 100)
    before = code_of(process.pid)
    yield process
    assert is_running(process.pid) and differences(before, code_of(process.pid)) == []


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "state"
    path.mkdir(mode=0o700)
    return path


def doctor_of(pid, env=None):
    result = run("doctor", "-p", pid, "--format", "json", env=env)
    report = json.loads(result.stdout)
    problems = [each for each in report["process"]["findings"] + report["machine"] if each["state"] == "problem"]
    assert bool(problems) == (result.returncode != 0) == (not report["can_trace"])
    return result.returncode, problems


def state_name(pid):
    start_time = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[19]
    return f"{pid}-{start_time}.state"


@pytest.mark.parametrize("most", [6, 8, 12, 16, 18, 20, 22, 24])
def test_few_descriptors_are_not_the_targets_end(raw_mmap, tmp_path, most):
    result = run("trace", "-p", raw_mmap.pid, "--engine", "probe", "-d", 0.3, "-o", tmp_path / "t",
                 preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (most, most)))
    assert "has ended" not in result.stdout + result.stderr and "exited" not in result.stderr
    assert result.returncode in (0, 1, 5), result.stderr
    if result.returncode == 5:
        (line,) = result.stderr.splitlines()
        assert line.startswith("whomap: too many open files") and "ulimit -n" in line
    assert most > 12 or result.returncode == 5


def test_a_file_that_may_not_grow_is_status_8(raw_mmap, tmp_path):
    result = run("trace", "-p", raw_mmap.pid, "--engine", "probe", "-d", 0.3, "-o", tmp_path / "t",
                 preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)))
    assert result.returncode == 8, result
    assert "cannot write" in result.stderr or "could not be written" in result.stderr


def useless(kind, folder):
    """Makes `folder` useless; returns what WHOMAP_STATE_DIR is then."""
    if kind == "mode":
        folder.chmod(0o755)
    elif kind == "link":
        (folder.parent / "link").symlink_to(folder)
        return str(folder.parent / "link")
    elif kind == "file":
        folder.rmdir()
        folder.touch()
    else:
        return "relative/state"
    return str(folder)


@pytest.mark.parametrize("kind", ["mode", "link", "file", "relative"])
def test_doctor_and_trace_agree_on_a_useless_state_folder(raw_mmap, folder, tmp_path, kind):
    env = {"WHOMAP_STATE_DIR": useless(kind, folder)}
    traced = run("trace", "-p", raw_mmap.pid, "-d", 0.3, "-o", tmp_path / "t", env=env, cwd=tmp_path)
    assert traced.returncode == 8 and len(traced.stderr.splitlines()) == 1, traced.stderr
    status, problems = doctor_of(raw_mmap.pid, env)
    assert status == 8 and [each["check"] for each in problems] == ["state"]
    assert "WHOMAP_STATE_DIR" in traced.stderr and not (tmp_path / "t").exists() and not (tmp_path / "relative").exists()


@pytest.mark.parametrize("kind", ["json", "fifo"])
def test_doctor_trace_and_repair_agree_on_a_damaged_state(raw_mmap, folder, tmp_path, kind):
    env = {"WHOMAP_STATE_DIR": str(folder)}
    path = folder / state_name(raw_mmap.pid)
    if kind == "fifo":
        os.mkfifo(path, 0o600)
    else:
        path.write_text("{")
    for command in (("trace", "-d", 0.3, "-o", tmp_path / "t"), ("repair",)):
        result = run(command[0], "-p", raw_mmap.pid, *command[1:], env=env)
        assert result.returncode == 6, result
        (line,) = result.stderr.splitlines()
        assert f"remove {path}" in line
    status, problems = doctor_of(raw_mmap.pid, env)
    assert status == 6 and f"remove {path}" in problems[0]["remedy"]


def test_doctor_and_trace_agree_on_another_whomap(raw_mmap, tmp_path):
    other = Trace(raw_mmap.pid, tmp_path / "other", engine="probe").wait_armed()
    try:
        traced = run("trace", "-p", raw_mmap.pid, "--engine", "probe", "-d", 0.3, "-o", tmp_path / "t")
        status, problems = doctor_of(raw_mmap.pid)
    finally:
        other.interrupt()
    assert (traced.returncode, status) == (3, 3), (traced.stderr, problems)
    assert "another whomap" in traced.stderr and "another whomap" in problems[0]["text"]
    assert doctor_of(raw_mmap.pid)[0] == 0


def test_stubs_of_a_whomap_with_another_state_folder_are_seen(raw_mmap, folder, tmp_path):
    env = {"WHOMAP_STATE_DIR": str(folder)}
    killed = Trace(raw_mmap.pid, tmp_path / "killed", engine="probe", env=env).wait_armed()
    os.kill(killed.supervisor, signal.SIGSTOP)
    killed.process.kill()
    killed.process.wait()
    os.kill(killed.supervisor, signal.SIGKILL)
    killed.wait_all_gone()
    for engine in (("--engine", "probe"), ("--engine", "gdb"), ("--no-stubs",)):
        traced = run("trace", "-p", raw_mmap.pid, *engine, "-d", 0.3, "-o", tmp_path / "t")
        assert traced.returncode == 3, traced
        (line,) = traced.stderr.splitlines()
        assert "stubs of another whomap" in line and f"whomap repair -p {raw_mmap.pid}" in line
    status, problems = doctor_of(raw_mmap.pid)
    assert status == 3 and "stubs of another whomap" in problems[0]["text"]
    assert run("repair", "-p", raw_mmap.pid, env=env).returncode == 0
    assert doctor_of(raw_mmap.pid)[0] == 0  # its memory stays mapped, and nothing jumps there
    traced = run("trace", "-p", raw_mmap.pid, "-d", 0.5, "-o", tmp_path / "t")
    assert traced.returncode == 0, traced.stderr
