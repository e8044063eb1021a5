#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""How often does a process survive that `whomap supervise` is killed with -9 while it puts stubs in or takes them out?

supervisor_killed.py [KILLS [MODE...]]: so many kills at chance moments for each engine, each half of its work and each mode of
tests/live/targets/under_load.c. A target that has died is replaced by a new one."""

import collections
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "live"))

from killed_supervisor import kill_at_random  # noqa: E402
from stub_support import compile_target  # noqa: E402
from support import Targets  # noqa: E402
from test_stubs_unharmed import Load  # noqa: E402


def fates_of(program, mode, kills, folder, **how):
    """What became of the target in so many kills that met the supervisor while it had the target stopped."""
    fates = collections.Counter()
    targets = Targets()
    load = Load(targets, program, mode)
    while sum(fates.values()) < kills:
        try:
            if kill_at_random(load, folder / "trace", **how):
                fates["survived"] += 1
        except (AssertionError, OSError) as error:
            load.process.kill()
            fates[f"{str(error).splitlines()[0]} (status {load.process.wait()})"] += 1
            load = Load(targets, program, mode)
    targets.end()
    return fates


def main():
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        program = compile_target("under_load", folder)
        for mode in sys.argv[2:] or ["none", "signals"]:
            for engine in ("probe", "gdb"):
                for removal in (False, True):
                    fates = fates_of(program, mode, kills, folder, engine=engine, removal=removal)
                    others = ", ".join(f"{count} {fate}" for fate, count in fates.items() if fate != "survived")
                    print(f"supervisor_killed: {fates['survived']} of {kills} survived{' (' + others + ')' if others else ''}: "
                          f"{engine}, {'removal' if removal else 'installation'}, mode {mode}", flush=True)


if __name__ == "__main__":
    main()
