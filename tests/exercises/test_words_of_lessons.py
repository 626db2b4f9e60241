"""What single exercises say: words that hold for the case shown, figures written in one form, wording."""

import json
from pathlib import Path

import pytest
import tensorflow as tf

from course_utils.exercises import all_exercises
from course_utils.exercises.judging import judge
from course_utils.exercises.observing import LEARNER_SEED, cases_of, observe
from course_utils.exercises.plain import plain

EXERCISES = {exercise.id: exercise for exercise in all_exercises()}
SOURCES = Path(__file__).parents[2] / "notebooks" / "source"


def verdict_on(name, answer):
    return judge(EXERCISES[name], observe(EXERCISES[name], answer))


def test_nan_is_spoken_of_only_where_there_is_one():
    exercise = EXERCISES["04.uneven_batch"]
    mistake = next(mistake for mistake in exercise.mistakes if mistake.name == "mean per replica")
    told = {}
    for index, case in enumerate(cases_of(exercise, LEARNER_SEED)):
        seen = observe(exercise, mistake.answer, only=index)[0]["value"]
        words = mistake.explained(case, seen, plain(exercise.expected(case)))
        told[index] = ("nan" in json.dumps(seen).lower(), "NaN" in words)
    assert {empty for empty, _ in told.values()} == {True, False}
    assert all(empty == spoken for empty, spoken in told.values())


@pytest.mark.parametrize(
    ("count", "name"),
    [
        (lambda errors: tf.shape(errors)[0], "the count is not a float32"),
        (lambda errors: errors.shape[0], "a Python number in the all-reduce"),
    ],
)
def test_an_error_of_a_beginner_gets_a_name_and_a_cure(count, name):
    def uneven_loss(per_example_loss):
        context = tf.distribute.get_replica_context()
        return tf.reduce_sum(per_example_loss) / context.all_reduce("SUM", count(per_example_loss))

    verdict = verdict_on("04.uneven_batch", uneven_loss)
    assert verdict.mistake == name and "tf.cast(tf.size(per_example_loss), tf.float32)" in verdict.try_this


def test_bytes_are_written_in_one_form_on_both_sides():
    verdict = verdict_on("03.bytes_per_worker", lambda workers, size: 2.0 * workers * size / (workers + 1))
    yours, expected = verdict.lines[0].texts()
    assert "," in yours and "," in expected and "e+" not in yours


def test_all_counts_of_the_ring_are_written_as_lists():
    verdict = verdict_on("03.ring_all_reduce", lambda arrays, send: arrays)
    assert all(text.startswith("[") for line in verdict.lines for text in line.texts())


def test_a_strategy_of_the_notebook_is_told_from_a_number_written_in():
    from course_utils import devices

    strategy = devices.mirrored(4)
    asked = verdict_on("00.count_replicas", lambda _: strategy.num_replicas_in_sync)
    assert asked.mistake == "another strategy was asked"
    assert verdict_on("00.count_replicas", lambda _: 4).mistake == "a fixed number"


def test_the_task_says_whether_slots_are_numbers_or_bytes():
    words = "counts numbers, not bytes"
    assert words in (SOURCES / "00_is_this_machine_ready.py").read_text()
    assert any(words in hint for hint in EXERCISES["00.memory_per_replica"].hints)
