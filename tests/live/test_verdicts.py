# SPDX-License-Identifier: Apache-2.0
"""Every verdict class on a real process that grows in that one way. All are traced at once: a plateau takes ten
seconds to show, and so do the others meanwhile."""

import json
import pathlib
import subprocess

import jsonschema
import pytest

from support import WHOMAP, Targets, wait_until

HERE = pathlib.Path(__file__).parent
SECONDS = 12
MODES = ["leak", "churn", "plateau", "retention", "malloc", "reservation", "arena", "thread-stacks", "file-pages",
         "no-site", "idle"]
HOOKS = ["hook-leak", "hook-balanced"]


def build(folder):
    subprocess.run(["gcc", "-O1", "-g", "-fno-optimize-sibling-calls", "-pthread", HERE / "verdict_targets.c", "-o",
                    folder / "verdict_targets"], check=True)
    for name, leaks in (("hook-leak", 1), ("hook-balanced", 0)):
        there = folder / name
        there.mkdir()
        common = ["gcc", "-O1", "-g", "-fno-optimize-sibling-calls", f"-DLEAKS={leaks}", HERE / "hook_targets.c"]
        subprocess.run([*common, "-DUCS", "-shared", "-fPIC", "-o", there / "libucs.so.0"], check=True)
        subprocess.run([*common, "-DUCM", "-shared", "-fPIC", "-o", there / "libucm.so.0"], check=True)
        subprocess.run([*common, "-o", there / "program", there / "libucm.so.0", there / "libucs.so.0",
                        f"-Wl,-rpath,{there}"], check=True)


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """{mode: (exit status, report, trace file, text of the answer)}"""
    folder = tmp_path_factory.mktemp("verdicts")
    build(folder)
    targets = Targets()
    started = {}
    try:
        for mode in MODES + HOOKS:
            program = [folder / mode / "program"] if mode in HOOKS else [folder / "verdict_targets", mode]
            target = targets.start(*program)
            trace = folder / f"{mode}.trace"
            syscalls = ["--syscalls", "munmap"] if mode == "no-site" else []
            whomap = subprocess.Popen([WHOMAP, "trace", "-p", str(target.pid), "-d", str(SECONDS), "-q", "--format", "json",
                                       "-o", trace, *syscalls], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            started[mode] = (target, whomap, trace)
        waiting = dict(started)

        def tell_those_that_are_watched():
            for mode, (target, whomap, trace) in list(waiting.items()):
                if whomap.poll() is not None or trace.exists() and b'"type":"snapshot"' in trace.read_bytes():
                    target.stdin.write(b"go\n")
                    target.stdin.flush()
                    del waiting[mode]
            return not waiting

        wait_until(tell_those_that_are_watched, "all traces to begin")
        results = {}
        for mode, (target, whomap, trace) in started.items():
            out, error = whomap.communicate(timeout=120)
            assert out, f"{mode}: {error}"
            assert target.poll() is None, f"{mode} ended"
            text = subprocess.run([WHOMAP, "match", trace], capture_output=True, text=True)
            results[mode] = (whomap.returncode, json.loads(out), trace, text.stdout)
        yield results
    finally:
        targets.end()


def check(answers, mode, verdict, status, *words):
    code, report, _, _ = answers[mode]
    text = report["verdict"]["text"]
    assert report["verdict"]["class"] == verdict, text
    assert code == status, text
    for word in words:
        assert word in text, text
    growth = report["growth"]
    assert growth["explained_bytes"] + growth["unexplained_bytes"] == growth["mapped_bytes"]
    assert sum(stack["growth_bytes"] for stack in report["stacks"]) == growth["explained_bytes"]
    assert sum(part["bytes"] for part in report["unexplained"]) == growth["unexplained_bytes"]
    assert sum(part["bytes"] for part in report["resident"]) == (
        growth["rss_anon_bytes"] + growth["rss_file_bytes"] + growth["rss_shmem_bytes"])
    return report


def test_a_slow_leak_in_balanced_traffic(answers):
    report = check(answers, "leak", "leak", 0, "get_buffer", "Still growing at the end")
    first = report["stacks"][0]
    assert first["count"] > 50 * first["live_bytes"] / 65536, "many more that were balanced"
    assert first["resident_exact"]
    assert first["resident_bytes"] == pytest.approx(first["growth_bytes"], rel=0.05)
    assert first["live_bytes"] < first["mapped_bytes"] / 20


def test_churn(answers):
    check(answers, "churn", "churn", 1, "nothing grew", "captured calls mapped", "get_buffer")


def test_plateau(answers):
    check(answers, "plateau", "plateau", 0, "get_buffer", "first third of the time", "has not grown since")


def test_retention(answers):
    check(answers, "retention", "retention", 0, "keep_block", "the allocator keeps what it has")


def test_malloc(answers):
    report = check(answers, "malloc", "malloc", 0, "leak_malloc", "heap profiler")
    assert "S16" in [advice["signature"] for advice in report["stacks"][0]["advice"]]


@pytest.mark.parametrize("mode", ["reservation", "arena"])
def test_reservations_that_are_filled(answers, mode):
    report = check(answers, mode, "reservation", 0, "no mmap was made", "mprotect")
    assert report["growth"]["rss_anon_bytes"] > 10 << 20


def test_stacks_of_ended_threads(answers):
    report = check(answers, "thread-stacks", "thread-stacks", 0, "start_poll_thread", "threads that have exited")
    assert "S17" in [advice["signature"] for advice in report["stacks"][0]["advice"]]
    assert report["regions"][0]["class"] == "exited-thread-stack"


def test_file_pages(answers):
    report = check(answers, "file-pages", "file-pages", 0, "RssFile grew", "the kernel can drop")
    assert report["resident"][0]["where"].startswith("pages of files")


def test_no_site(answers):
    check(answers, "no-site", "no-site", 1, "were newly mapped", "none of the", "no captured call mapped")


def test_not_growing(answers):
    check(answers, "idle", "not-growing", 1, "nothing grew")


def test_a_hook_that_leaks_below_munmap(answers):
    report = check(answers, "hook-leak", "leak", 0, "ucs_mpool_grow", "inside ucm_munmap", "callers are not the cause")
    leak = report["stacks"][0]
    assert {advice["signature"] for advice in leak["advice"]} == {"S01", "S02", "S03"}
    assert all(advice["hazard"] for advice in leak["advice"] if advice["remedy"])
    through = [stack for stack in report["stacks"] if stack["syscall"] == "mmap"
               and "_PyMem_ArenaAlloc" in [frame["function"] for frame in stack["frames"]]]
    assert through and {stack["class"] for stack in through} == {"pass-through"}
    text = answers["hook-leak"][3]
    assert "UCX_RCACHE_MAX_UNRELEASED" in text and "hazard" in text and "The version is unknown" in " ".join(text.split())


def test_a_hook_that_only_passes_through(answers):
    check(answers, "hook-balanced", "pass-through", 1, "nothing grew", "libucm.so.0 only passes the calls through")


def pprof(*arguments):
    return subprocess.run(["go", "tool", "pprof", *map(str, arguments)], capture_output=True, text=True, timeout=120)


def report_file(answers, form, folder, *options):
    path = folder / f"report.{form}"
    subprocess.run([WHOMAP, "report", answers["leak"][2], "--format", form, "-o", path, *options], check=True)
    return path


def test_pprof_reads_the_profile(answers, tmp_path):
    profile = report_file(answers, "pprof", tmp_path)
    top = pprof("-top", "-cum", "-unit=B", profile)
    assert top.returncode == 0, top.stderr
    assert "Type: growth" in top.stdout
    assert "File: verdict_targets" in top.stdout, "the main program is the first mapping"
    row = next(line.split() for line in top.stdout.splitlines() if line.endswith(" get_buffer"))
    expected = sum(stack["growth_bytes"] for stack in answers["leak"][1]["stacks"]
                   if "get_buffer" in [frame["function"] for frame in stack["frames"]])
    assert row[3] == f"{expected}B"
    for kind in ("live", "calls"):
        assert f"Type: {kind}" in pprof("-top", f"-sample_index={kind}", profile).stdout
    raw = pprof("-raw", profile).stdout
    assert "verdict_targets.c" in raw and "Build ID" not in raw.splitlines()[0]
    assert "Type: live" in pprof("-top", report_file(answers, "pprof", tmp_path / "..", "--weight", "live", "--force")).stdout


def test_speedscope_follows_its_schema(answers, tmp_path):
    schema = json.loads((HERE.parent / "data/speedscope/file-format-schema.json").read_text())
    profile = json.loads(report_file(answers, "speedscope", tmp_path).read_text())
    jsonschema.validate(profile, schema)
    growth, live = profile["profiles"]
    assert sum(growth["weights"]) == growth["endValue"] == answers["leak"][1]["growth"]["explained_bytes"]
    assert live["name"] == "live" and sum(live["weights"]) == sum(
        stack["live_bytes"] for stack in answers["leak"][1]["stacks"])
    names = [frame["name"] for frame in profile["shared"]["frames"]]
    assert "get_buffer" in [names[index] for index in growth["samples"][0]]
    with pytest.raises(jsonschema.ValidationError):  # the schema is not one that takes anything
        jsonschema.validate({**profile, "profiles": [{**growth, "weights": ["x"]}]}, schema)


def test_html_holds_everything_and_loads_nothing(answers, tmp_path):
    page = report_file(answers, "html", tmp_path).read_text()
    assert "default-src 'none'" in page and "http://" not in page and "src=" not in page.replace("default-src", "")
    data = page.split('id="data">', 1)[1].split("</script>", 1)[0]
    assert json.loads(data)["report"]["verdict"]["class"] == "leak"
