# SPDX-License-Identifier: Apache-2.0
"""The status file: what happened, one JSON object a line, for the process that started GDB.

GDB's exit code says little: `gdb -batch -p BADPID` exits with 0.
"""

import json
import os


class StatusFile:
    def __init__(self, descriptor):
        self._descriptor = descriptor

    def write(self, state, **facts):
        if self._descriptor is None:
            return
        line = json.dumps({"state": state, **facts}) + "\n"
        os.write(self._descriptor, line.encode("ascii"))
