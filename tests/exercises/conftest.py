"""Four virtual devices, which exercises about replicas need, and a progress file of its own for each test."""

import pytest

from course_utils import devices
from course_utils.exercises.model import Exercise, Mistake

devices.simulate(4)


@pytest.fixture(autouse=True)
def progress_file(tmp_path, monkeypatch):
    path = tmp_path / "progress.json"
    monkeypatch.setenv("COURSE_PROGRESS", str(path))
    return path


@pytest.fixture
def make_exercise():
    """An exercise of the tests' own: `double(x)`, over the numbers 3 and 5; any part can be replaced."""

    def make(**parts):
        usual = {
            "id": "99.double",
            "title": "Twice as much",
            "points": 3,
            "length": "about 1 line",
            "signature": "double(x)",
            "hints": ["Add something to `x`.", "Add `x` to `x`."],
            "cases": lambda random: [{"about": f"x is {x}", "x": x} for x in (3, 5)],
            "observe": lambda answer, case: {"result": answer(case["x"])},
            "expected": lambda case: {"result": 2 * case["x"]},
            "mistakes": [
                Mistake("squared", lambda x: x * x, "You multiplied by x.", "Multiply by 2."),
                Mistake(
                    "not doubled",
                    lambda x: x,
                    lambda case, seen, expected: f"{case['x']} became {seen['result']}.",
                    "Multiply by 2.",
                ),
            ],
            "time_limit": 0.5,
        }
        return Exercise(**{**usual, **parts})

    return make
