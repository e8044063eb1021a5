# SPDX-License-Identifier: Apache-2.0
"""Starts the process that receives the captures when no whomap has started this GDB."""

import os
import subprocess

from _whomap import make_channel


def start(command, plan_text):
    """Returns the tracer's end of the channel. The collector gets the plan on its standard input."""
    tracer_fd, collector_fd = make_channel()
    try:
        process = subprocess.Popen(
            [*command, "--channel-fd", str(collector_fd)],
            stdin=subprocess.PIPE, pass_fds=(collector_fd,))
        with process.stdin as stdin:
            stdin.write(plan_text.encode("utf-8"))
    except OSError:
        os.close(tracer_fd)
        raise
    finally:
        os.close(collector_fd)
    return tracer_fd
