"""The example that shows lesson writers how to write an exercise down is itself a sound one."""

import textwrap

from course_utils.exercises import model
from course_utils.exercises.proving import problems


def test_the_example_in_the_documentation_is_sound(monkeypatch):
    _, text = model.__doc__.split("`exercises/lesson_99.py`:\n")
    lesson, solution = text.split("\nand `solutions/lesson_99.py` (imports and helper functions that the ")
    solution = solution.split(":\n", 1)[1].split("\nGood to know")[0]
    space, answers = {}, {}
    exec(textwrap.dedent(lesson), space)
    exec(textwrap.dedent(solution), answers)
    monkeypatch.setattr(model.Exercise, "reference", property(lambda exercise: answers[exercise.name]))
    (exercise,) = space["EXERCISES"]
    assert [problem for seed in range(5) for problem in problems(exercise, seed)] == []
