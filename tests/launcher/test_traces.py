"""Reading back what Python writes about an error and about where it stands."""

import subprocess
import sys

import pytest

from course_utils.cluster.launch import traces


def python(lines, *options):
    done = subprocess.run([sys.executable, *options, "-c", lines], capture_output=True, text=True, timeout=60)
    return done.stderr.splitlines()


@pytest.mark.parametrize(
    ("lines", "kind", "message"),
    [
        ("raise ValueError('one\\ntwo')", "ValueError", "one\ntwo"),
        ("raise KeyError", "KeyError", ""),
        (
            "import json; json.loads('{')",
            "JSONDecodeError",
            "Expecting property name enclosed in double quotes: ",
        ),
        ("try:\n  1/0\nexcept Exception:\n  raise OSError('last')", "OSError", "last"),
        ("one two", "SyntaxError", "invalid syntax"),
        ("class Über(Exception): pass\nraise Über('x')", "Über", "x"),
    ],
)
def test_the_last_error_is_the_one_that_ended_the_program(lines, kind, message):
    found = traces.last_error(["said before", *python(lines)])
    assert found.kind == kind and found.message.startswith(message)


def test_a_program_that_wrote_no_traceback_has_no_last_error():
    assert traces.last_error(["Error: nothing", ""]) is None
    assert traces.last_error(["Traceback (most recent call last):"]) is None


@pytest.mark.parametrize(
    ("type", "message", "consequence"),
    [
        ("tensorflow.python.framework.errors_impl.UnavailableError", "anything", True),
        ("tensorflow.python.framework.errors_impl.InternalError", "Socket closed", True),
        ("tensorflow.python.framework.errors_impl.InternalError", "out of ideas", False),
        ("ValueError", "Socket closed", False),
    ],
)
def test_an_error_that_only_tells_of_a_missing_worker_is_told_from_one_of_its_own(type, message, consequence):
    assert traces.LastError(type, message).consequence is consequence


ABORT = """
import os, signal, threading
def other():
    threading.Event().wait()
def inner():
    os.kill(os.getpid(), signal.SIGABRT)
threading.Thread(target=other, daemon=True).start()
inner()
"""


def test_the_stack_of_the_main_thread_is_read_from_an_abort_outermost_first():
    lines = ["said before", *python(ABORT, "-X", "faulthandler")]
    assert [frame[2] for frame in traces.main_stack(lines)] == ["<module>", "inner"]
    assert traces.main_stack(lines)[1][:2] == ("<string>", 6)
    assert traces.without_dump(lines) == ["said before"]


def test_without_an_abort_there_is_no_stack():
    assert traces.main_stack(["nothing"]) is None
    assert traces.without_dump(["nothing"]) == ["nothing"]
