"""What a learner calls, and how calls that cannot be meant are answered."""

import sys

import keras
import pytest
import tensorflow as tf

import course_utils as cu
from course_utils.errors import ExerciseError


def right(per_example_loss, global_batch_size):
    return tf.reduce_sum(per_example_loss) / global_batch_size


def test_a_check_is_shown_in_the_progress():
    assert cu.check("04.compute_loss", right).passed
    lines = str(cu.progress()).splitlines()
    assert next(line for line in lines if "04.compute_loss" in line).split()[:2] == ["✓", "04.compute_loss"]
    assert lines[0].startswith("2 of ")


@pytest.mark.parametrize(
    "arguments, told",
    [
        (("04.compute_los", right), 'Did you mean "04.compute_loss"?'),
        (("compute_loss", right), 'Did you mean "04.compute_loss"?'),
        (("77.nonsense_xyz", right), "The ids are: "),
        ((right, "04.compute_loss"), r'swapped.*cu\.check\("04.compute_loss", compute_loss\)'),
        (("04.compute_loss",), r'no answer to check.*cu\.check\("04.compute_loss", compute_loss\)'),
        ((4, right), "id of an exercise is text"),
    ],
)
def test_a_call_that_cannot_be_meant_is_answered_with_the_right_one(arguments, told):
    with pytest.raises(ExerciseError, match=told):
        cu.check(*arguments)


def test_hints_come_one_after_the_other_and_the_last_stays():
    hints = cu.exercises.find("04.compute_loss").hints
    shown = [str(cu.hint("04.compute_loss")) for _ in range(len(hints) + 1)]
    assert [text.splitlines()[0][:11] for text in shown] == [
        "Hint 1 of 3",
        "Hint 2 of 3",
        "Hint 3 of 3",
        "Hint 3 of 3",
    ]
    assert "cu.hint" in shown[0] and "cu.solution" in shown[2]


def test_a_hint_can_be_asked_for_by_number():
    assert str(cu.hint("04.compute_loss", 2)).startswith("Hint 2 of 3")
    assert str(cu.hint("04.compute_loss")).startswith("Hint 3 of 3")
    assert str(cu.hint("04.compute_loss", 1)).startswith("Hint 1 of 3")
    for number in (0, 4, "x", 1.0, True, [1]):
        with pytest.raises(ExerciseError, match=r"has 3 hints(.|\n)*a whole number from 1 to 3"):
            cu.hint("04.compute_loss", number)


def test_the_solution_says_to_try_first_until_something_was_checked():
    assert "Try it first" in str(cu.solution("04.compute_loss"))
    assert "<details>" in cu.solution("04.compute_loss")._repr_html_()
    cu.check("04.compute_loss", lambda a, b: 1)
    assert "Try it first" not in str(cu.solution("04.compute_loss"))
    assert "tf.reduce_sum(per_example_loss) / global_batch_size" in str(cu.solution("04.compute_loss"))
    assert "<details>" not in cu.solution("04.compute_loss")._repr_html_()


@pytest.fixture
def without_solutions(monkeypatch):
    """As in a release: the lesson files of `course_utils/solutions` are not there."""
    import course_utils.solutions

    monkeypatch.setattr(course_utils.solutions, "__path__", [])
    for name in [name for name in sys.modules if name.startswith("course_utils.solutions.")]:
        monkeypatch.delitem(sys.modules, name)


def test_a_release_without_solutions_says_so_and_still_checks(without_solutions):
    assert "comes without solutions" in str(cu.solution("04.compute_loss"))
    with pytest.raises(ExerciseError, match="holds no solution"):
        cu.exercises.reference_source("04.compute_loss")
    assert cu.check("04.compute_loss", right).passed
    assert cu.check("04.compute_loss", lambda a, b: tf.reduce_mean(a)).mistake == "mean per replica"


def test_a_release_without_the_whole_folder_says_so_too(without_solutions, monkeypatch):
    monkeypatch.setitem(sys.modules, "course_utils.solutions", None)
    assert "comes without solutions" in str(cu.solution("04.compute_loss"))


def test_an_unsaved_progress_is_told_on_the_card(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "file" / "progress.json"))
    verdict = cu.check("04.compute_loss", right)
    assert verdict.passed and "could not be saved" in str(verdict)


def test_a_layer_in_the_place_of_the_function_that_makes_it_is_told():
    verdict = cu.check("09.batch_norm", keras.layers.BatchNormalization(synchronized=True))
    assert not verdict.passed and "You gave the layer itself" in verdict.message
