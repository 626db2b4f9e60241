"""In a worker of the pool: run a script as `python script.py arguments` would, and end as it would."""

import atexit
import contextlib
import os
import runpy
import sys
import threading
import traceback
from typing import NoReturn

from course_utils.cluster.worker import without_our_nodes

INTERRUPTED = 130  # what a shell reports for a program that Ctrl-C has ended


def run_as_main(script: str, arguments: list[str]) -> NoReturn:
    """Never returns: the process ends with the exit code that the script would have had."""
    sys.argv = [script, *arguments]
    code = _run(script)
    with contextlib.suppress(BaseException):
        threading._shutdown()  # as at the end of every program: threads that are no daemons finish first
    with contextlib.suppress(BaseException):
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code)


def _run(script: str) -> int:
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as error:
        return _exit_code(error.code)
    except BaseException as error:
        text = traceback.format_exception(type(error), error, _from_the_script_on(error, script))
        sys.stderr.write(without_our_nodes("".join(text)))
        return INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _exit_code(code) -> int:
    """What `sys.exit(code)` leaves behind; a text is printed, and counts as failure."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def _from_the_script_on(error: BaseException, script: str):
    """The traceback without what is around the script; None where it never began, as with a SyntaxError."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != script:
        trace = trace.tb_next
    return trace
