# SPDX-License-Identifier: Apache-2.0
"""whomap inside GDB: carries out a plan on a process and hands the captures over."""

import gdb

MINIMUM_GDB = (12, 0)


def _gdb_version():
    digits = []
    for part in gdb.VERSION.replace("-", ".").split(".")[:2]:
        if not part.isdigit():
            break
        digits.append(int(part))
    return tuple(digits)


if _gdb_version() and _gdb_version() < MINIMUM_GDB:
    raise gdb.GdbError(
        "whomap needs GDB %d.%d or later, this is GDB %s" % (*MINIMUM_GDB, gdb.VERSION))


def run(configuration):
    """Entry of a generated script; see session.Session for what `configuration` holds."""
    from .session import Session

    Session(configuration).run()
