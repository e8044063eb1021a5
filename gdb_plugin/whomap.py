# SPDX-License-Identifier: Apache-2.0
"""whomap inside an interactive GDB: `source` this file, then `help whomap`.

It sets nothing in GDB. Sourcing it again is harmless."""


def _load():
    import importlib
    import os
    import sys

    folder = os.path.dirname(os.path.abspath(__file__))
    writes_bytecode = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    sys.path.insert(0, folder)
    try:
        importlib.import_module("whomap_gdb.commands").register()
    except ImportError as error:
        import gdb
        raise gdb.GdbError("whomap's module was not built for the Python in this GDB (%s): build it anew, "
                           "./dev build" % error)
    finally:
        sys.path.remove(folder)
        sys.dont_write_bytecode = writes_bytecode


_load()
del _load
