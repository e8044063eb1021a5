# SPDX-License-Identifier: Apache-2.0
"""The program whomap, from inside GDB: what needs no debugger is done by it."""

import os
import signal
import subprocess

import gdb


def path():
    """The program that this plugin was built or installed with."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    places = [os.path.join(folder, "..", "whomap"), os.path.join(folder, "..", "..", "bin", "whomap")]
    for place in places:
        if os.access(place, os.X_OK) and os.path.isfile(place):
            return os.path.realpath(place)
    raise gdb.GdbError("the program whomap is not at %s" % os.path.realpath(places[0]))


def start(arguments, **options):
    """In a session of its own: Ctrl-C at GDB's prompt is for the debugged process, and its end is none of whomap's."""
    return subprocess.Popen([path(), *arguments], start_new_session=True, **options)


def run(*arguments):
    """Runs it to its end; returns (standard output, standard error). GDB may have taken its exit status: it reaps
    all children. That it failed is seen by what it printed."""
    process = start(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        output, errors = process.communicate()
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        raise gdb.GdbError("interrupted")
    return output.decode("utf-8", "replace"), errors.decode("utf-8", "replace")


def answer_of(*arguments):
    """Its standard output. Raises what it printed as an error when that is all there is."""
    output, errors = run(*arguments)
    if not output:
        raise gdb.GdbError(errors.strip() or "whomap %s printed nothing" % arguments[0])
    return output
