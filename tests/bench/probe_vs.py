#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The probe engine beside what else records the stacks of mmap calls: how fast the target still maps memory, how many of its
calls are captured, and what each call costs it. One thread maps as fast as it can, 20 frames deep. Rivals take turns, medians.

Then the same thread with work between the calls, so that it makes 30,000 a second: what it still gets done."""

import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

from bench_support import Target, Trace, compile_target, in_real_time, median
from capture_rate import PUBLISHED, return_address

ROUNDS = 3
SECONDS = 2


def maps_a_second(target, seconds=SECONDS):
    before = target.ask()
    time.sleep(seconds)
    after = target.ask()
    return (after[1] - before[1]) / (after[0] - before[0]) * 1e9


def nothing(target, folder):
    rate = maps_a_second(target)
    return rate, None


def whomap(engine):
    def traced(target, folder):
        trace = Trace(target.pid, folder / "trace", engine=engine).wait_armed()
        rate = maps_a_second(target)
        trace.interrupt()
        times = [record["exit_ns"] for record in trace.records() if record.get("type") == "event"]
        return rate, (len(times) - 1) / (times[-1] - times[0]) * 1e9
    return traced


def perf(target, folder):
    data = folder / "perf.data"
    recorder = subprocess.Popen(["perf", "record", "-q", "-e", "syscalls:sys_exit_mmap", "--call-graph", "dwarf,8192", "-p",
                                 str(target.pid), "-o", data], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(1)
    if recorder.poll() is not None:
        raise RuntimeError("perf record has no tracepoint here (is tracefs mounted?)")
    begin = time.monotonic()
    rate = maps_a_second(target)
    recorder.send_signal(signal.SIGINT)
    recorder.wait(60)
    taken = time.monotonic() - begin + 1
    stats = subprocess.run(["perf", "report", "-i", data, "--stats"], capture_output=True, text=True).stdout
    samples = int(re.search(r"SAMPLE events:\s+(\d+)", stats).group(1))
    return rate, samples / taken


def strace(target, folder):
    log = folder / "strace.log"
    with open(log, "w") as out:
        tracer = subprocess.Popen(["strace", "-f", "-k", "-e", "trace=mmap", "-p", str(target.pid)], stdout=out, stderr=out)
        time.sleep(1)
        before = log.read_text(errors="replace").count("mmap(")
        rate = maps_a_second(target)
        captured = log.read_text(errors="replace").count("mmap(") - before
        tracer.send_signal(signal.SIGINT)
        tracer.wait(60)
    return rate, captured / SECONDS


def published(target, folder):
    script, output = folder / "published.gdb", folder / "published.txt"
    script.write_text(PUBLISHED.format(pid=target.pid, return_address=return_address(target.pid)))
    with open(output, "w") as out:
        gdb = subprocess.Popen(["gdb", "-nx", "-q", "-batch", "-x", script], stdin=subprocess.DEVNULL, stdout=out,
                               stderr=subprocess.DEVNULL, start_new_session=True)
    time.sleep(2)
    before = output.read_text(errors="replace").count("Syscall returned")
    rate = maps_a_second(target)
    captured = output.read_text(errors="replace").count("Syscall returned") - before
    gdb.send_signal(signal.SIGINT)
    gdb.wait(60)
    return rate, captured / SECONDS


def bpftrace(target, folder):
    program = (f"tracepoint:syscalls:sys_exit_mmap /pid == {target.pid}/ {{ @[ustack(20)] = count(); @n = count(); }} "
               "interval:s:1 { print(@n); clear(@n); }")
    output = folder / "bpftrace.txt"
    with open(output, "w") as out:
        tracer = subprocess.Popen(["bpftrace", "-e", program], stdout=out, stderr=subprocess.STDOUT)
        time.sleep(3)
        if tracer.poll() is not None:
            raise RuntimeError(output.read_text().strip().splitlines()[-1])
        rate = maps_a_second(target)
        tracer.send_signal(signal.SIGINT)
        tracer.wait(60)
    counts = [int(each) for each in re.findall(r"^@n: (\d+)$", output.read_text(), re.M)]
    return rate, max(counts) if counts else 0


RIVALS = {"no tracer": nothing, "whomap probe": whomap("probe"), "whomap gdb": whomap("gdb"), "perf record dwarf": perf,
          "bpftrace (frame pointers)": bpftrace, "strace -f -k": strace, "published GDB script": published}


PACE = 30_000  # maps a second
PACED_SECONDS = 2


def work_for_pace(program):
    """Rounds of a loop between two calls, so that the thread makes PACE a second when it does nothing else."""
    work = 10_000
    for _ in range(3):
        with Target(program, 1, 0, 0, 20, work, preexec_fn=in_real_time) as target:
            work = max(1, int(work * maps_a_second(target, 0.5) / PACE))
    return work


def paced(program, folder):
    work = work_for_pace(program)
    alone, traced, captured, lost = [], [], [], 0
    for _ in range(ROUNDS + 2):
        with Target(program, 1, 0, 0, 20, work, preexec_fn=in_real_time) as target:
            before = maps_a_second(target, PACED_SECONDS)
            trace = Trace(target.pid, folder / "trace", engine="probe", preexec_fn=in_real_time).wait_armed()
            during = maps_a_second(target, PACED_SECONDS)
            trace.interrupt()
            after = maps_a_second(target, PACED_SECONDS)
            alone.append((before + after) / 2)
            traced.append(during / alone[-1])
            times = [record["exit_ns"] for record in trace.records() if record.get("type") == "event"]
            captured.append((len(times) - 1) / (times[-1] - times[0]) * 1e9)
            lost += trace.records()[-1]["lost"]
    print(f"probe_vs: a thread that makes {median(alone):,.0f} maps/s, 20 frames deep, and computes between them, keeps "
          f"{100 * median(traced):.1f}% ({100 * min(traced):.1f}..{100 * max(traced):.1f}) of its throughput under whomap probe, which "
          f"captures {median(captured):,.0f}/s and loses {lost} in all   (goal: 95%)", flush=True)


def main():
    if sys.argv[1:] == ["paced"]:
        with tempfile.TemporaryDirectory() as name:
            paced(compile_target("paced_calls", name), pathlib.Path(name))
        return
    results = {name: [] for name in RIVALS}
    missing = {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        program = compile_target("paced_calls", folder)
        paced(program, folder)
        for _ in range(ROUNDS):
            for rival, measure in RIVALS.items():
                if rival in missing:
                    continue
                with Target(program, 1, 0, 0, 20) as target:
                    try:
                        results[rival].append(measure(target, folder))
                    except (OSError, RuntimeError, AttributeError) as error:
                        missing[rival] = str(error)
    base = median([rate for rate, _ in results["no tracer"]])
    print(f"{'':26} {'target maps/s':>14} {'of untraced':>12} {'captured/s':>12} {'us a call':>10}")
    for rival, rounds in results.items():
        if rival in missing:
            print(f"{rival:26} cannot run here: {missing[rival]}")
            continue
        rate = median([each for each, _ in rounds])
        captured = [each for _, each in rounds if each is not None]
        cost = 1e6 / rate - 1e6 / base
        print(f"{rival:26} {rate:14,.0f} {100 * rate / base:11.1f}% "
              f"{(f'{median(captured):,.0f}' if captured else '-'):>12} {cost:10.2f}")


if __name__ == "__main__":
    main()
