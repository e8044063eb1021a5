# SPDX-License-Identifier: Apache-2.0
"""The ledger of a real process, after thousands of random calls, is what /proc/PID/maps says."""

import json
import pathlib
import subprocess

import pytest

from support import BUILD, WHOMAP, wait_until

HERE = pathlib.Path(__file__).parent


@pytest.fixture
def random_maps(targets, tmp_path):
    program = tmp_path / "random_maps"
    subprocess.run(["gcc", "-O1", "-g", "-pthread", HERE / "random_maps.c", "-o", program], check=True)
    return lambda *arguments: targets.start(program, *map(str, arguments))


@pytest.mark.parametrize("threads,calls", [(1, 3000), (6, 500)])
def test_live_intervals_are_the_mapped_addresses(random_maps, tmp_path, threads, calls):
    target = random_maps(threads, calls)
    trace = tmp_path / "t.trace"
    whomap = subprocess.Popen([WHOMAP, "trace", "-p", str(target.pid), "-d", "60", "-q", "-o", trace, "--syscalls",
                               "mmap,munmap,mremap,brk,shmat,shmdt"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_until(lambda: trace.exists() and b'"type":"snapshot"' in trace.read_bytes(), "the trace to begin")
    target.stdin.write(b"go\n")
    target.stdin.flush()
    assert target.stdout.readline() == b"done\n"
    whomap.terminate()
    _, error = whomap.communicate(timeout=60)
    found = json.loads(subprocess.run([BUILD / "tests" / "whomap_ledger_check", trace], capture_output=True,
                                      check=True).stdout)
    assert found["events"] > threads * calls / 2, error
    assert found["intervals"] > 10 * threads ** 0.5
    assert found["owned_not_mapped"] == 0, found
    assert found["new_not_owned"] == 0, found
    assert found["attached"] == found["attached_mapped"], found
    assert found["implausible"] == 0, found
