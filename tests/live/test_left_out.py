# SPDX-License-Identifier: Apache-2.0
"""What is left out as the user asked is counted and said; what the ledger needs is never left out."""

import json

import pytest

from support import read_trace, run

MAPS = """
import mmap, sys, time
print("ready", flush=True)
kept = []
while True:
    for size in (8192, 16384, 1 << 20):
        kept.append(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    for each in kept[-6:-3]:
        each.close()
    time.sleep(0.002)
"""
MAP_FIXED = 0x10


def traced(targets, path, engine, *options):
    process = targets.start("python3", "-c", MAPS)
    result = run("trace", "-p", process.pid, "--engine", engine, "-d", 2, "-q", "-o", path, "--format", "json", *options)
    assert result.returncode in (0, 1), result.stderr
    report = json.loads(result.stdout)
    assert report["trace"]["lost"] == 0
    records = read_trace(path)
    return [record for record in records if record.get("type") == "event"], records[-1], report


@pytest.mark.parametrize("engine, options", [("probe", ()), ("gdb", ()), ("gdb", ("--no-stubs",))])
def test_short_maps(targets, tmp_path, engine, options):
    events, end, report = traced(targets, tmp_path / "t", engine, "--min-length", "64K", *options)
    lengths = {int(event["args"][1], 16) for event in events
               if event["call"] == "mmap" and not int(event["args"][3], 16) & MAP_FIXED}
    unmapped = {int(event["args"][1], 16) for event in events if event["call"] == "munmap"}
    assert lengths == {1 << 20}
    assert unmapped >= {8192, 16384, 1 << 20}
    large = sum(event["call"] == "mmap" for event in events)
    assert large < end["left_out"] < 3 * large  # two small ones for each large one
    assert report["trace"]["left_out"] == end["left_out"]
    assert any(f"left out by --min-length 65536: {end['left_out']} mmap calls of" in note for note in report["notes"])
    assert f"{end['left_out']:,} left out as asked" in " ".join(run("match", tmp_path / "t").stdout.split())


@pytest.mark.parametrize("option, value, note", [("--sample-bytes", "4M", "left out by --sample-bytes: "),
                                                 ("--max-rate", "20", "left out by --max-rate: ")])
def test_sample_and_rate(targets, tmp_path, option, value, note):
    events, end, report = traced(targets, tmp_path / "t", "auto", option, value)
    assert report["trace"]["engine"] == "probe"
    maps = sum(event["call"] == "mmap" for event in events)
    unmaps = sum(event["call"] == "munmap" for event in events)
    assert 0 < maps < unmaps
    assert abs(maps + end["left_out"] - unmaps) <= 6 * 2
    assert any(note in each for each in report["notes"])


@pytest.mark.parametrize("options", [("--min-length", "0"), ("--min-length", "x"), ("--sample-bytes", "-1"), ("--max-rate", "0"),
                                     ("--max-rate", "10", "--engine", "gdb"), ("--sample-bytes", "1M", "--no-stubs")])
def test_wrong_values(options):
    refused = run("trace", "-p", "1", *options)
    assert refused.returncode == 2 and "--" in refused.stderr
