"""The course's own lessons: they keep the rules, their notebooks are built, and solved they pass every check.

That the learner's notebooks run from top to bottom is nbval's part: pytest collects notebooks/*.ipynb.
"""

import pytest

from course_utils.notebooks import build, lint, solve, sources

TIME_LIMIT = 540  # seconds for a lesson; less than pytest gives a test, so that the cell is named
LESSONS = pytest.mark.parametrize("path", sources.find(), ids=lambda path: path.stem)


def test_there_are_lessons_and_a_source_for_every_notebook():
    named = {path.stem for path in sources.find()}
    assert named
    assert {path.stem for path in sources.FOLDER.glob("*.ipynb")} == named


@LESSONS
def test_a_lesson_keeps_the_rules(path):
    findings = lint.lint(path)
    assert not findings, "\n" + "\n".join(map(str, findings))


@LESSONS
def test_a_notebook_is_what_its_source_builds(path):
    assert build.drift(path) is None


@LESSONS
def test_a_solved_lesson_passes_every_check(path):
    outcomes = solve.outcomes(path, time_limit=TIME_LIMIT)
    assert outcomes
    assert set(outcomes.values()) == {"passed"}, outcomes
