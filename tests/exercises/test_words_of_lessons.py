"""What single exercises say: words that hold for the case shown, figures written in one form, wording."""

import json
import math
import os
import subprocess
import sys
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


def a_rate(warm, cosine):
    def learning_rate(step, base_rate, per_replica, replicas, warmup_steps, total_steps):
        peak = base_rate * per_replica * replicas / 256
        if step >= total_steps:
            return 0.0
        if step < warmup_steps:
            return warm(step, base_rate, peak, warmup_steps)
        return peak / 2 * (1 + math.cos(math.pi * cosine(step, warmup_steps, total_steps)))

    return learning_rate


def test_no_factor_is_told_that_only_one_of_several_wrong_numbers_has():
    odd = a_rate(lambda step, base, peak, warm: 1.5 * peak * step / warm, lambda s, w, t: (s - w) / (2 * t))
    verdict = verdict_on("06.learning_rate", odd)
    assert verdict.mistake is None and verdict.message == "The result is not the expected one."


def test_a_cosine_that_is_too_long_is_named_also_where_it_is_cut_off():
    too_long = a_rate(lambda step, base, peak, warm: peak * step / warm, lambda s, w, t: (s - w) / t)
    verdict = verdict_on("06.learning_rate", too_long)
    assert verdict.mistake == "the cosine is too long" and "the last update" in verdict.message


def test_parameters_may_have_other_names_in_a_learning_rate():
    answer = EXERCISES["06.learning_rate"].reference
    assert verdict_on("06.learning_rate", lambda k, base, b, n, w, t: answer(k, base, b, n, w, t)).passed


def test_accumulate_is_checked_in_a_process_that_asked_for_no_devices():
    lines = "import course_utils as cu", "from course_utils.exercises.catalogue import find"
    lines += ("print(cu.check('06.accumulate', find('06.accumulate').reference).outcome)",)
    environment = {**os.environ, "COURSE_PROGRESS": os.devnull}
    ended = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], text=True, capture_output=True, timeout=150, env=environment
    )
    assert ended.stdout.split()[-1:] == ["passed"], ended.stderr[-2000:]
    assert "significant overhead" not in ended.stderr


@pytest.mark.parametrize("seed", range(4))
def test_workers_taken_for_replicas_get_their_name_whatever_the_shuffle(seed):
    exercise = EXERCISES["08.my_share"]
    tf.random.set_seed(seed)

    def my_share(records, context, global_batch):
        mine = records.shard(context.num_replicas_in_sync, context.input_pipeline_id)
        return mine.shuffle(1000).batch(context.get_per_replica_batch_size(global_batch))

    assert judge(exercise, observe(exercise, my_share)).mistake == "sharded by replicas"


def test_a_list_of_everybodys_steps_is_no_missing_mean():
    verdict = verdict_on("08.steps_per_epoch", lambda mine, batch, gather: gather(math.ceil(mine / batch)))
    assert not verdict.passed and "Choose one" in verdict.message


def test_one_step_and_one_record_are_written_in_the_singular():
    exercise = EXERCISES["08.steps_per_epoch"]
    mistake = next(mistake for mistake in exercise.mistakes if mistake.name == "the fewest steps")
    case, expected = {"batch": 3}, {}
    words = mistake.explained(case, {"steps of each worker": [1, 1], "records never seen": 1}, expected)
    assert "1 step and" in words and "1 record is never seen" in words


@pytest.mark.parametrize("form", [lambda data: list(data.take(5)), iter])
def test_what_is_still_to_come_is_a_dataset(form):
    answer = EXERCISES["10.resume"].reference
    verdict = verdict_on("10.resume", lambda *args: form(answer(*args)))
    assert not verdict.passed and "the dataset of the batches to come" in verdict.message
