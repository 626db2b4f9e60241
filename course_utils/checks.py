"""Refusals that many parts of the course share, so that they read alike."""

import contextlib
import operator

from course_utils.errors import CourseError


def whole(what: str, value, least: int = 1, error: type[CourseError] = CourseError, cure: str = "") -> int:
    """`value` as an int, where it is a whole number (of Python, NumPy or TensorFlow) from `least` on.

    Raises `error` for anything else, True and 2.0 too; `what` names it, such as "save(step)".
    """
    with contextlib.suppress(TypeError):
        if not isinstance(value, bool) and (number := operator.index(value)) >= least:
            return number
    raise error(f"{what} cannot be {value!r}.", expected=f"a whole number from {least}.", cure=cure)
