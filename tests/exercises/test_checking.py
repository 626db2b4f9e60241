"""The framework itself, on an exercise of the tests' own: outcomes, mistakes, words, odd answers."""

import asyncio
import contextlib
import functools
import re
import signal
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from course_utils.errors import DeviceError, ExerciseError
from course_utils.exercises.judging import judge
from course_utils.exercises.model import Mistake, Outcome
from course_utils.exercises.observing import LEARNER_SEED, cases_of, from_text, observe, to_text
from course_utils.exercises.plain import NotPlain
from course_utils.exercises.proving import problems


def verdict_on(exercise, answer, seed=LEARNER_SEED):
    return judge(exercise, observe(exercise, answer, seed), seed)


# --- the five outcomes


def test_a_right_answer_passes_and_earns_all_points(make_exercise):
    verdict = verdict_on(make_exercise(), lambda x: x + x)
    assert verdict.outcome is Outcome.PASSED and verdict.points == 3 and bool(verdict)


def test_a_known_mistake_is_named_explained_and_earns_nothing(make_exercise):
    verdict = verdict_on(make_exercise(), lambda x: x**2)
    assert (verdict.outcome, verdict.mistake, verdict.points) == (Outcome.FAILED, "squared", 0)
    assert verdict.message == "You multiplied by x." and verdict.try_this == "Multiply by 2."
    assert not verdict


def test_the_explanation_speaks_of_the_first_case_that_is_wrong(make_exercise):
    assert verdict_on(make_exercise(), lambda x: x * 1).message == "3 became 3."


def test_a_mistake_that_fits_only_one_of_the_cases_is_not_named(make_exercise):
    verdict = verdict_on(make_exercise(), lambda x: 9 if x == 3 else 0)
    assert verdict.outcome is Outcome.FAILED and verdict.mistake is None


def test_an_answer_right_in_some_cases_fails_and_says_in_how_many(make_exercise):
    verdict = verdict_on(make_exercise(), lambda x: 6)
    assert verdict.outcome is Outcome.FAILED and verdict.about == "x is 5 (1 of 2 cases right)"


def test_an_error_is_told_with_the_learners_own_line(make_exercise):
    def double(x):
        y = x
        return y + z  # noqa: F821

    verdict = verdict_on(make_exercise(), double)
    assert verdict.outcome is Outcome.RAISED and "name 'z' is not defined" in verdict.message
    assert verdict.where.endswith("return y + z  # noqa: F821")


def test_an_error_inside_a_tf_function_is_told_with_the_learners_own_line(make_exercise):
    @tf.function
    def double(x):
        return tf.reshape(x, [7])

    verdict = verdict_on(make_exercise(time_limit=20), double)  # tracing takes its time
    assert verdict.outcome is Outcome.RAISED and verdict.where.endswith("return tf.reshape(x, [7])")
    assert "\n" not in verdict.message


def test_leaving_the_process_counts_as_an_error_and_does_not_leave_it(make_exercise):
    verdict = verdict_on(make_exercise(), lambda x: exit(1))
    assert verdict.outcome is Outcome.RAISED and "SystemExit" in verdict.message


class Speechless(Exception):
    def __str__(self):
        raise ValueError("no words")


class Stubborn(BaseException):
    pass


@pytest.mark.parametrize("error", [Speechless, GeneratorExit, Stubborn, asyncio.CancelledError])
def test_whatever_an_answer_raises_is_a_verdict(make_exercise, error):
    def double(x):
        raise error

    verdict = verdict_on(make_exercise(), double)
    assert verdict.outcome is Outcome.RAISED and error.__name__ in verdict.message
    assert verdict.where.endswith("raise error")


def test_the_learner_can_interrupt_a_check(make_exercise):
    def double(x):
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        verdict_on(make_exercise(), double)


class Touchy:
    """It answers every question with an error."""

    def __getattr__(self, name):
        raise ValueError(f"no {name}")


class TouchyDouble(Touchy):
    def __call__(self, x):
        return 2 * x


def test_an_answer_that_raises_when_it_is_looked_at_is_a_verdict(make_exercise):
    assert verdict_on(make_exercise(), TouchyDouble()).passed
    verdict = verdict_on(make_exercise(), Touchy())
    assert verdict.outcome is Outcome.RAISED and "no shape" in verdict.message


def test_an_endless_loop_is_stopped(make_exercise):
    def double(x):
        while True:
            x += 1

    verdict = verdict_on(make_exercise(), double)
    assert verdict.outcome is Outcome.TIMED_OUT and "0.5 seconds" in verdict.message


def test_an_endless_loop_that_swallows_every_exception_is_stopped(make_exercise):
    def double(x):
        while True:
            with contextlib.suppress(Exception):
                time.sleep(60)

    assert verdict_on(make_exercise(), double).outcome is Outcome.TIMED_OUT


def test_a_wait_for_a_lock_is_stopped(make_exercise):
    verdict = verdict_on(make_exercise(), lambda x: threading.Event().wait(60))
    assert verdict.outcome is Outcome.TIMED_OUT


def test_an_endless_loop_is_stopped_outside_the_main_thread_too(make_exercise):
    def double(x):
        while True:
            pass

    found = []
    thread = threading.Thread(target=lambda: found.append(verdict_on(make_exercise(), double)), daemon=True)
    thread.start()
    thread.join(30)
    assert found and found[0].outcome is Outcome.TIMED_OUT


def test_an_endless_loop_on_a_replica_leaves_no_thread_running(make_exercise):
    from course_utils import devices

    def endless(x):
        while True:
            pass

    def observe_on_replicas(answer, case):
        run = tf.autograph.experimental.do_not_convert(lambda: answer(case["x"]))
        return devices.mirrored(2).run(run)

    before = set(threading.enumerate())
    verdict = verdict_on(make_exercise(observe=observe_on_replicas), endless)
    assert verdict.outcome is Outcome.TIMED_OUT
    for thread in set(threading.enumerate()) - before:
        thread.join(20)
        assert not thread.is_alive(), thread


def test_the_time_limit_is_off_once_the_check_is_over(make_exercise):
    verdict_on(make_exercise(time_limit=0.05), lambda x: 2 * x)
    assert len([threading.Event().wait(0.2)]) == 1  # a timer still running would raise in here


# --- not attempted


def empty(x): ...


def with_docstring(x):
    """Twice x."""


def with_pass(x):
    pass


def returning_none(x):
    return None


def not_implemented(x):
    raise NotImplementedError("write me")


UNTOUCHED = [None, ..., empty, with_docstring, with_pass, returning_none, not_implemented, tf.function(empty)]


@pytest.mark.parametrize("answer", UNTOUCHED)
def test_an_untouched_stub_is_not_attempted(make_exercise, answer):
    verdict = verdict_on(make_exercise(), answer)
    assert verdict.outcome is Outcome.NOT_ATTEMPTED and "about 1 line" in verdict.message


def computing_but_forgetting_the_return(x):
    x + x


def test_a_forgotten_return_is_an_attempt(make_exercise):
    assert verdict_on(make_exercise(), computing_but_forgetting_the_return).outcome is Outcome.FAILED


@pytest.mark.parametrize("value", [None, ..., "", "...", (None, None), {"a": None, "b": ...}], ids=str)
def test_an_empty_value_is_not_attempted(make_exercise, value):
    exercise = make_exercise(signature="guess", observe=lambda answer, case: answer)
    assert verdict_on(exercise, value).outcome is Outcome.NOT_ATTEMPTED


@pytest.mark.parametrize("value", [0, False, [], "SUM", [0, 0]], ids=str)
def test_a_value_that_says_something_is_an_attempt(make_exercise, value):
    exercise = make_exercise(signature="guess", observe=lambda answer, case: answer)
    assert verdict_on(exercise, value).outcome is Outcome.FAILED


def test_a_longer_stub_is_not_attempted_until_it_computes_something_else(make_exercise):
    given = "def double(x):\n    total = 0\n    for _ in range(2):\n        ...\n    return total\n"
    exercise, space = make_exercise(stub=given), {}
    exec(given.replace("total = 0", "total = 0  # the sum"), space)
    assert verdict_on(exercise, space["double"]).outcome is Outcome.NOT_ATTEMPTED
    exec(given.replace("...", "total += x"), space)
    assert verdict_on(exercise, space["double"]).outcome is Outcome.PASSED


# --- answers that cannot be called as they should be


def test_a_result_in_place_of_the_function_is_explained(make_exercise):
    message = verdict_on(make_exercise(), tf.constant(6.0)).message
    assert "the function double itself, without brackets" in message


def test_a_wrong_signature_is_told_beside_the_expected_one(make_exercise):
    def double(x, y, *, z):
        return x

    message = verdict_on(make_exercise(), double).message
    assert "double(x, y, *, z)" in message and "double(x)" in message


def test_more_arguments_with_defaults_and_other_names_are_fine(make_exercise):
    assert verdict_on(make_exercise(), lambda number, times=2, *more, **rest: number * times).passed


@pytest.mark.parametrize(
    "answer", [functools.partial(lambda n, x: n * x, 2), (2).__mul__, np.array(2).__mul__]
)
def test_anything_callable_that_computes_the_right_thing_passes(make_exercise, answer):
    assert verdict_on(make_exercise(), answer).passed


def test_a_function_in_place_of_a_value_is_explained(make_exercise):
    exercise = make_exercise(signature="guess", observe=lambda answer, case: answer, mistakes=[])
    assert "should be a value" in verdict_on(exercise, lambda: 3).message


# --- results of another kind than expected


@pytest.mark.parametrize(
    "double", [lambda x: tf.constant(2 * x), lambda x: np.float32(2 * x), lambda x: 2.0 * x]
)
def test_tensors_arrays_and_floats_that_hold_the_right_number_pass(make_exercise, double):
    assert verdict_on(make_exercise(), double).passed


def test_a_nan_is_named(make_exercise):
    assert "NaN" in verdict_on(make_exercise(), lambda x: float("nan")).message


def test_a_wrong_shape_is_named_with_the_expected_one(make_exercise):
    verdict = verdict_on(make_exercise(), lambda x: np.ones((2, 3)))
    assert "(2, 3)" in verdict.message and "()" in verdict.message


def test_a_constant_factor_is_named(make_exercise):
    assert "3 times too large" in verdict_on(make_exercise(), lambda x: 6 * x).message
    assert "wrong sign" in verdict_on(make_exercise(), lambda x: -2 * x).message


def test_a_result_that_is_nearly_right_is_told_how_near(make_exercise):
    exercise = make_exercise()
    assert "close, but 0.05 % too large" in verdict_on(exercise, lambda x: 2.001 * x).message
    assert "close, but 0.05 % too small" in verdict_on(exercise, lambda x: 1.999 * x).message


def test_an_object_that_is_no_data_is_refused_in_words(make_exercise):
    verdict = verdict_on(make_exercise(), lambda x: object())
    assert verdict.outcome is Outcome.FAILED and "type object came back" in verdict.message


def test_true_is_not_taken_for_one(make_exercise):
    exercise = make_exercise(expected=lambda case: {"result": 1}, mistakes=[])
    assert not verdict_on(exercise, lambda x: True).passed


def test_an_answer_that_changes_its_arguments_does_not_change_the_judgement(make_exercise):
    def cases(random):
        return [{"x": np.array([1.0, 2.0])}]

    def double(x):
        x *= 0
        return x

    exercise = make_exercise(cases=cases, mistakes=[])
    assert not verdict_on(exercise, double).passed


def test_trouble_with_the_machine_is_not_counted_as_the_answers_fault(make_exercise):
    def observe_without_devices(answer, case):
        raise DeviceError("This process has 1 device.")

    with pytest.raises(DeviceError):
        verdict_on(make_exercise(observe=observe_without_devices), lambda x: x)


# --- mistakes that are known by what they show


def test_a_mistake_with_many_faces_is_recognised_over_all_cases(make_exercise):
    constant = Mistake(
        "always the same",
        lambda x: 7,
        "It does not depend on x.",
        "Use x.",
        variants=[lambda x: 8],
        recognises=lambda cases, seen, expected: len({one["result"] for one in seen}) == 1,
    )
    exercise = make_exercise(mistakes=[constant])
    assert verdict_on(exercise, lambda x: 1234).mistake == "always the same"
    assert verdict_on(exercise, lambda x: 1234 + x).mistake is None
    assert verdict_on(exercise, lambda x: "text").mistake == "always the same"
    assert verdict_on(exercise, lambda x: [x]).mistake is None  # the question itself fails on a list


def test_an_error_that_counts_layers_is_known_however_many_there_were(make_exercise):
    count = iter(("dense/kernel:0", "dense_1/kernel:0", "conv2d_12/kernel:0", "dense_3/kernel:0"))

    def fails(x):
        raise ValueError(f"not in this scope: <Variable {next(count)!r}>")

    mistake = Mistake("out of scope", fails, "You are out.", "Come in.")
    exercise = make_exercise(mistakes=[mistake], cases=lambda random: [{"x": 3}])
    known = judge(exercise, observe(exercise, fails))  # "dense" first, and "dense_1" when it is known
    assert known.mistake == "out of scope"
    assert judge(exercise, observe(exercise, fails)).mistake is None  # another layer


def test_a_mistake_may_be_known_by_the_error_that_it_raises(make_exercise):
    indexes = Mistake("indexed", lambda x: x[0], "A number has no entries.", "Use x itself.")
    exercise = make_exercise(mistakes=[indexes])
    verdict = verdict_on(exercise, lambda number: number[0])
    assert (verdict.outcome, verdict.mistake) == (Outcome.RAISED, "indexed")
    assert verdict_on(exercise, lambda x: x + "a").mistake is None


def test_the_first_mistake_that_fits_is_named(make_exercise):
    special = Mistake("special", lambda x: 0, "", "")
    general = Mistake("general", lambda x: 1, "", "", recognises=lambda cases, seen, expected: True)
    exercise = make_exercise(mistakes=[special, general])
    assert verdict_on(exercise, lambda x: 0).mistake == "special"
    assert verdict_on(exercise, lambda x: 5).mistake == "general"


def test_an_explanation_that_does_not_fit_the_result_does_not_stop_the_check(make_exercise):
    anything = Mistake(
        "anything",
        lambda x: 0,
        lambda case, seen, expected: f"{seen['other']}",
        "",
        recognises=lambda *_: True,
    )
    verdict = verdict_on(make_exercise(mistakes=[anything]), lambda x: 6 * x)
    assert verdict.mistake == "anything" and "3 times too large" in verdict.message


def test_a_known_mistake_is_run_no_further_than_needed_to_tell_it_apart(make_exercise):
    runs = []

    def far_off(x):
        runs.append(x)
        return -x

    exercise = make_exercise(mistakes=[Mistake("far off", far_off, "", "")])
    assert verdict_on(exercise, lambda x: 6 if x == 3 else 0).mistake is None
    assert runs == [5]  # the first case that the answer gets wrong


# --- cases


def test_cases_follow_the_seed(make_exercise):
    exercise = make_exercise(cases=lambda random: [{"x": random.integers(10**9)}])
    assert cases_of(exercise, 1) == cases_of(exercise, 1) != cases_of(exercise, 2)


def test_an_answer_that_knows_the_learners_cases_by_heart_fails_on_other_seeds(make_exercise):
    exercise = make_exercise(cases=lambda random: [{"x": int(random.integers(10**9))}])
    learned = {case["x"]: 2 * case["x"] for case in cases_of(exercise, LEARNER_SEED)}
    by_heart = functools.partial(dict.get, learned)
    assert verdict_on(exercise, by_heart).passed
    assert not verdict_on(exercise, by_heart, seed=1).passed


# --- records that travel


@pytest.mark.parametrize(
    "answer", [None, lambda x: 2 * x, lambda x: x / 0, lambda x: object(), lambda x: np.ones(3)]
)
def test_records_travel_as_text_and_are_judged_the_same(make_exercise, answer):
    exercise = make_exercise()
    records = observe(exercise, answer)
    there = judge(exercise, from_text(to_text(records)))
    assert repr(there) == repr(judge(exercise, records))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "3",
        '[{"kind": "passed"}]',
        '[{"kind": "value"}]',
        '[{"kind": "raised", "type": 3, "message": "", "where": ""}]',
        '[{"kind": "value", "value": {"__array__": "object", "shape": [1], "data": [1]}}]',
        '[{"kind": "value", "value": {"__array__": "float32", "shape": [99, 99], "data": [1]}}]',
        "[" * 100_000,
        '"' + "x" * 5_000_000 + '"',
    ],
    ids=lambda text: text[:40],
)
def test_a_text_that_is_no_list_of_records_is_refused(text):
    with pytest.raises(NotPlain):
        from_text(text)


def test_missing_and_surplus_records_do_not_pass(make_exercise):
    exercise = make_exercise()
    records = observe(exercise, lambda x: 2 * x)
    assert judge(exercise, records).passed
    assert not judge(exercise, records[:1]).passed
    assert not judge(exercise, [{"kind": "not attempted"}] * 2).passed


# --- a definition that is wrong is refused


@pytest.mark.parametrize(
    "part",
    [
        {"id": "double"},
        {"points": 0},
        {"hints": ["only one"]},
        {"signature": "double(x"},
        {"signature": "3"},
        {"mistakes": [Mistake("m", 1, "", ""), Mistake("m", 2, "", "")]},
    ],
    ids=str,
)
def test_a_wrong_definition_is_refused(make_exercise, part):
    with pytest.raises(ExerciseError, match="defined wrongly"):
        make_exercise(**part)


# --- the proof of an exercise finds what is wrong with it


@pytest.fixture
def provable(make_exercise, monkeypatch):
    """An exercise as `make_exercise` makes it, with a reference."""

    def make(reference=lambda x: 2 * x, **parts):
        exercise = make_exercise(**parts)
        monkeypatch.setattr(type(exercise), "reference", property(lambda self: reference))
        return exercise

    return make


def test_a_sound_exercise_has_no_problems(provable):
    assert problems(provable()) == []


@pytest.mark.parametrize(
    "parts, told",
    [
        ({"reference": lambda x: 3 * x}, "the reference does not pass"),
        ({"also_right": [lambda x: x + 3]}, r"also_right\[0\] does not pass"),
        ({"mistakes": [Mistake("added", lambda x: x + x, "", "")]}, "'added'"),
        ({"mistakes": [Mistake("a", lambda x: 0, "", ""), Mistake("b", lambda x: 0.0, "", "")]}, "'b'"),
        ({"mistakes": [Mistake("nothing", lambda x: None, "", "")]}, "'nothing'"),
        ({"mistakes": [Mistake("m", lambda x: 0, lambda c, s, e: s["typo"], "")]}, "cannot be explained"),
        ({"stub": "def double(x):\n    return x\n", "mistakes": []}, None),
    ],
    ids=lambda value: str(value)[:40],
)
def test_the_proof_names_what_is_wrong(provable, parts, told):
    found = "\n".join(problems(provable(**parts)))
    assert (told is None and not found) or re.search(told, found)


def test_a_card_may_keep_the_right_value_to_itself(make_exercise):
    verdicts = [
        judge(exercise, observe(exercise, lambda x: 7 if x == 3 else 2 * x))
        for exercise in (make_exercise(), make_exercise(shows_expected=False))
    ]
    shown, hidden = ([line.texts() for line in verdict.lines] for verdict in verdicts)
    assert shown == [("7", "6")] and hidden == [("7", "(something else)")]
    assert not any(verdict.passed for verdict in verdicts)
