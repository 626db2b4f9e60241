"""The source of a reference stands alone: with its imports, the helpers that it uses, and nothing else."""

import textwrap

import pytest

from course_utils.errors import ExerciseError
from course_utils.exercises import solutions


@pytest.fixture
def solution_file(tmp_path, monkeypatch, make_exercise):
    """Write a file of references; the source of the one named `double` comes back."""

    def write(text, **parts):
        file = tmp_path / "lesson_99.py"
        file.write_text(textwrap.dedent(text), encoding="utf-8")
        monkeypatch.setattr(solutions, "find", lambda _: make_exercise(**parts))
        monkeypatch.setattr(solutions, "_spec", lambda _: type("Spec", (), {"origin": str(file)}))
        return solutions.reference_source("99.double")

    return write


def test_a_function_comes_with_the_imports_and_helpers_that_it_uses(solution_file):
    source = solution_file(
        '''
        """The references."""

        import math
        import numpy as np
        from os import path, sep

        TWO = 2
        UNUSED = np.ones(3)


        def other(x):
            return UNUSED


        def times(x):
            return TWO * math.floor(x)


        @staticmethod
        def double(x):
            return times(x) + len(sep) - 1
        '''
    )
    assert source == textwrap.dedent(
        """\
        import math
        from os import path, sep


        TWO = 2


        def times(x):
            return TWO * math.floor(x)


        @staticmethod
        def double(x):
            return times(x) + len(sep) - 1
        """
    )


def test_a_value_comes_as_its_assignment(solution_file):
    source = solution_file("double = [\n    1,\n    2,\n]\nother = 3\n", signature="double")
    assert source == "double = [\n    1,\n    2,\n]\n"


def test_a_missing_reference_is_named(solution_file):
    with pytest.raises(ExerciseError, match="defines no double"):
        solution_file("other = 3\n")
