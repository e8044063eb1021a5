#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""How fast `whomap trace --engine gdb` captures, against the published GDB script, and what that costs the target.

Only the ratios within one run mean something; each figure is the median of rounds in which the rivals take turns."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

from bench_support import Target, Trace, compile_target, median, spread, wait_until

ROUNDS = 5
SECONDS = 2

# The commands of "Heaps do lie: debugging a memory leak in vLLM" (Mistral AI, 2026), with the pid and the return address of this
# process, without its log file: what it logs goes to standard output, which it writes to as well.
PUBLISHED = """attach {pid}
break syscall if $rdi == 9
commands
  silent
  tbreak *{return_address:#x}
  commands $bpnum + 1
    silent
    set $ret_val = $rax
    bt
    printf "Syscall returned: rax = 0x%012lx\\n", $ret_val
    continue
  end
  continue
end
continue
"""


def return_address(pid):
    """Behind the instruction of syscall(), as its plan says."""
    import json
    from support import run
    plan = json.loads(run("plan", "-p", pid, "--format", "json").stdout)
    return next(int(site["return_address"], 16) for site in plan["sites"] if site["symbol"] == "syscall")


def published_rate(target, folder):
    script = pathlib.Path(folder) / "published.gdb"
    script.write_text(PUBLISHED.format(pid=target.pid, return_address=return_address(target.pid)))
    output = pathlib.Path(folder) / "published.txt"
    with open(output, "w") as out:
        gdb = subprocess.Popen(["gdb", "-nx", "-q", "-batch", "-x", script], stdin=subprocess.DEVNULL, stdout=out,
                               stderr=subprocess.DEVNULL, start_new_session=True)

    def captured():
        return output.read_text(errors="replace").count("Syscall returned")

    wait_until(lambda: captured() >= 3, "the published script to capture")
    before, begin = captured(), time.monotonic()
    time.sleep(SECONDS)
    rate = (captured() - before) / (time.monotonic() - begin)
    assert "#19 " in output.read_text(errors="replace")  # stacks of 20 frames
    os.kill(gdb.pid, signal.SIGINT)
    gdb.wait(30)
    return rate


def whomap_rate(target, folder):
    """Captures a second and processor time of GDB for each, in us."""
    trace = Trace(target.pid, pathlib.Path(folder) / "trace", seconds=SECONDS)
    trace.finish()
    records = trace.records()
    times = [record["exit_ns"] for record in records if record.get("type") == "event"]
    frames = [len(record["frames"]) for record in records if record.get("type") == "symbols"]
    assert max(frames) >= 20, frames
    end = records[-1]
    rate = (len(times) - 1) / (times[-1] - times[0]) * 1e9
    return rate, 1e6 * end["predicted_slowdown"] / rate, end["lost"]


def compare_rates(program, folder):
    published, ours, costs, lost = [], [], [], 0
    for _ in range(ROUNDS):
        with Target(program, 1, 0, 0, 20) as target:
            rate, cost, missed = whomap_rate(target, folder)
            ours.append(rate)
            costs.append(cost)
            lost += missed
        with Target(program, 1, 0, 0, 20) as target:
            published.append(published_rate(target, folder))
    print(f"capture_rate: published script  {spread(published, 'captures/s')}")
    print(f"capture_rate: whomap            {spread(ours, 'captures/s')}, {lost} lost; GDB works {median(costs):.0f} us for each")
    print(f"capture_rate: ratio             {median(ours) / median(published):.0f}   (goal: 50)")


def rate_of(target, index, seconds=1.0):
    """A sum of the target's a second."""
    before = target.ask()
    time.sleep(seconds)
    after = target.ask()
    return (after[index] - before[index]) / (after[0] - before[0]) * 1e9


def untraced_and_traced(target, folder, index):
    untraced, traced = [], []
    for _ in range(ROUNDS):
        untraced.append(rate_of(target, index))
        trace = Trace(target.pid, pathlib.Path(folder) / "trace").wait_armed()
        traced.append(rate_of(target, index))
        trace.interrupt()
    return untraced, traced


def compare_share(program, folder):
    with Target(program, 3, 1, 0, 20) as target:
        untraced, traced = untraced_and_traced(target, folder, 2)
    print(f"capture_rate: a computing thread beside 3 that map, 4 threads on {os.cpu_count()} processors, keeps "
          f"{100 * median(traced) / median(untraced):.0f} % of what it has untraced   (goal: 90)")


def compare_other_calls(program, folder):
    with Target(program, 0, 0, 1, 20) as target:
        untraced, traced = untraced_and_traced(target, folder, 3)
    before, after = (1e9 / max(each) for each in (untraced, traced))  # others on the machine only add
    print(f"capture_rate: a getppid through syscall() costs {before:.1f} ns, {after:.1f} ns with a stub there: "
          f"{after - before:+.1f} ns   (goal: at most 20)")


def show_where_time_goes(program, folder):
    """GDB's processor time by what it is spent in, with perf."""
    if not shutil.which("perf"):
        print("capture_rate: where the time of a capture goes: perf is not installed")
        return
    data = pathlib.Path(folder) / "perf.data"
    with Target(program, 1, 0, 0, 20) as target:
        trace = Trace(target.pid, pathlib.Path(folder) / "trace").wait_armed()
        subprocess.run(["perf", "record", "-q", "-g", "-o", data, "-p", str(trace.gdb), "--", "sleep", str(SECONDS)], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        trace.interrupt()
    for title, options in (("by module", ["--sort", "dso"]), ("by function", ["--sort", "symbol"])):
        report = subprocess.run(["perf", "report", "-i", data, "--stdio", "--no-children", "-g", "none", "-w", "60,60,60", *options],
                                capture_output=True, text=True).stdout
        lines = [line.strip() for line in report.splitlines() if re.match(r"\s*\d", line)]
        print(f"capture_rate: where GDB's time goes, {title}")
        for line in lines[:12]:
            print(f"    {line.rstrip(' -')}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        program = compile_target("paced_calls", folder)
        compare_rates(program, folder)
        compare_share(program, folder)
        compare_other_calls(program, folder)
        show_where_time_goes(program, folder)


if __name__ == "__main__":
    main()
