# SPDX-License-Identifier: Apache-2.0
"""The real UCX case: memory mapped through libraries that hook mmap and munmap."""

import pytest

from support import EXAMPLES, code_of, differences, functions_of, is_running, report_of, run, wait_until

UCX = EXAMPLES / "ucx_case"
NANOSLEEP = ("35", "230")  # nanosleep, clock_nanosleep
pytestmark = pytest.mark.skipif(not UCX.exists(), reason="the ucx example was not built: libucx-dev is missing")


def start(targets, mode):
    process = targets.start(UCX, mode, ready=False,
                            env={"UCX_MEM_MMAP_HOOK_MODE": "bistro", "LEAK_SECS": "100", "UCX_LOG_LEVEL": "error"})
    # Its loop has begun when it naps with UCX loaded.
    wait_until(lambda: "libucs" in open(f"/proc/{process.pid}/maps").read(), "UCX to be loaded")
    wait_until(lambda: open(f"/proc/{process.pid}/syscall").read().split()[0] in NANOSLEEP, "the loop of the case")
    return process


def in_order(names, chain):
    """Do `names` appear in `chain` in this order?"""
    rest = iter(chain)
    return all(name in rest for name in names)


def trace(process, tmp_path, seconds=3):
    before = code_of(process.pid)
    result = run("trace", "-p", process.pid, "-d", seconds, "--format", "json", "-o", tmp_path / "t")
    assert result.returncode == 0, result.stderr
    assert is_running(process.pid)
    assert differences(before, code_of(process.pid)) == []  # as found: with UCX's own patches
    return report_of(result)


def test_appmmap_is_the_applications_leak(targets, tmp_path):
    report = trace(start(targets, "appmmap"), tmp_path)
    first = report["stacks"][0]
    assert first["share"] >= 0.95
    assert in_order(["syscall", "ucm_orig_mmap_syscall", "ucm_event_dispatch", "ucm_mmap", "leak_mmap", "main"],
                    functions_of(first))
    # Between the two named libucm frames is a static function without a name: no name is better than a wrong one.
    chain = functions_of(first)
    assert chain[chain.index("ucm_orig_mmap_syscall") + 1] is None
    assert "leak_mmap" in report["verdict"]["text"]


def test_invq_is_mapped_inside_munmap(targets, tmp_path):
    report = trace(start(targets, "invq"), tmp_path)
    first = report["stacks"][0]
    assert first["share"] >= 0.95
    assert in_order(["syscall", "ucm_orig_mmap_syscall", "ucs_mpool_grow", "ucs_mpool_get_grow", "ucm_event_dispatch",
                     "ucm_munmap", "scratch_put", "handle_request", "main"], functions_of(first))
    assert functions_of(first).count(None) == 2
