"""`check` where nbgrader runs the notebook: what it counts as an error has to be one, and nothing else.

nbgrader gives a check cell its points when the cell raises nothing *and writes nothing to stderr*
(`nbgrader.utils.determine_grade`). While it runs a notebook, to grade or to validate it, it sets
NBGRADER_EXECUTION.
"""

import contextlib
import dataclasses
import os
import sys
from collections.abc import Iterator

from course_utils.errors import CourseError
from course_utils.exercises.judging import Verdict

SETTING = "NBGRADER_EXECUTION"  # "autograde" or "validate"


class NotPassed(CourseError):
    """An answer that earns no points, in the words of its verdict."""

    def _render_traceback_(self):
        return str(self).splitlines()  # IPython shows this: where `check` raised tells a learner nothing


class _Displayed(Verdict):
    """A verdict that shows itself, so that the cell has no result: nbgrader takes a result for points."""

    def _ipython_display_(self):
        from IPython.display import display

        display({"text/plain": repr(self), "text/html": self._repr_html_()}, raw=True)


def running() -> bool:
    """Whether nbgrader runs this notebook."""
    return SETTING in os.environ


def settled(verdict: Verdict) -> Verdict:
    """The verdict, if the answer has passed; raises NotPassed if not."""
    if not verdict.passed:
        raise NotPassed(repr(verdict))
    return _Displayed(**{part.name: getattr(verdict, part.name) for part in dataclasses.fields(verdict)})


@contextlib.contextmanager
def without_stderr() -> Iterator[None]:
    """A context in which all that goes to stderr, from Python or native code, goes to stdout instead."""
    error, native = sys.stderr, os.dup(2)
    sys.stdout.flush()
    error.flush()
    # A logger holds on to the stream that it was made with; a kernel's says by its name what it is.
    is_kernels = type(error).__module__.startswith("ipykernel")
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, native)
        os.dup2(1, 2)
        stack.callback(os.dup2, native, 2)
        if is_kernels:
            error.name = sys.stdout.name
            stack.callback(setattr, error, "name", "stderr")
        stack.callback(error.flush)
        stack.enter_context(contextlib.redirect_stderr(sys.stdout))
        yield
