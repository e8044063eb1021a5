# SPDX-License-Identifier: Apache-2.0
import subprocess

import pytest

from support import Targets


@pytest.fixture
def targets():
    started = Targets()
    yield started
    started.end()


@pytest.fixture
def compile_c(tmp_path):
    """Compiles C source text; returns the program's path."""
    def build(source, *flags, name="program", compiler="gcc"):
        code = tmp_path / (name + ".c")
        code.write_text(source)
        program = tmp_path / name
        subprocess.run([compiler, "-O2", "-g", str(code), "-o", str(program), "-pthread", *flags], check=True)
        return program
    return build
