# SPDX-License-Identifier: Apache-2.0
import pathlib
import signal
import sys
import threading
import types

import pytest

from fakes import Tracer, fake_gdb

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "gdb_plugin"))
sys.dont_write_bytecode = True


@pytest.fixture
def gdb(monkeypatch):
    module = fake_gdb()
    core = types.ModuleType("_whomap")
    Tracer.ready = True
    core.Tracer = Tracer
    core.make_channel = lambda: (3, 4)
    core.default_trace_name = lambda plan: "whomap-name.trace"
    Tracer.stubs = {"traps": [], "jumps": []}
    monkeypatch.setattr(signal, "sigwait", lambda signals: threading.Event().wait())  # none comes
    monkeypatch.setattr(signal, "pthread_sigmask", lambda how, signals: set())  # this process keeps its Ctrl-C
    monkeypatch.setitem(sys.modules, "gdb", module)
    monkeypatch.setitem(sys.modules, "_whomap", core)
    for name in [name for name in sys.modules if name.startswith("whomap_gdb")]:
        monkeypatch.delitem(sys.modules, name)
    yield module
    for name in [name for name in sys.modules if name.startswith("whomap_gdb")]:
        del sys.modules[name]
