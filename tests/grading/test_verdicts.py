"""From what came back to a verdict: right for every answer, in words for every end, whatever the text is."""

import dataclasses
import json

import numpy as np
import pytest

from course_utils.exercises import all_exercises, find, judging
from course_utils.exercises.observing import cases_of, from_text, to_text
from course_utils.exercises.plain import NotPlain, plain
from course_utils.grading import control, verdicts
from course_utils.grading.model import UNGRADED, Answer, Ended, Raw, Result
from tests.grading.desk_parts import examine, reference

BYTES, TOKEN = find("03.bytes_per_worker"), "a" * 32
ANSWER = Answer(BYTES.id, "def bytes_per_worker(workers, array_bytes): return 1")
# Cheap ones, of many kinds, and one with a cluster; `tests.benchmarks.verdicts` takes all, over many seeds.
CHEAP = ["00.memory_per_replica", "01.stays_equal", "03.ring_all_reduce", "04.l2_loss", "07.make_tf_config"]
CHEAP += ["08.steps_per_epoch", "11.supervise", "14.straggler", "16.workers_for", "15.run_steps"]


@pytest.mark.parametrize("exercise_id", CHEAP)
def test_the_reference_as_source_earns_full_points(runner, exercise_id):
    result = examine(runner, reference(exercise_id), seed=1)
    assert (result.points, result.outcome) == (result.possible, "passed"), result.message


def verdict(text, ended=Ended.FINISHED, **raw):
    return verdicts.verdict(BYTES, ANSWER, Raw(ended, text, **raw), 1, TOKEN)


def text_of(records, token=TOKEN, **more):
    parts = {"records": json.loads(to_text(records)), "idle": {"kind": "unusable", "message": "…"}}
    parts |= {"echo": json.loads(to_text([control.echo(BYTES, control.number(TOKEN))]))[0], **more}
    return f"{token}\n{json.dumps(parts)}"


def right(seed=1):
    return [{"kind": "value", "value": plain(BYTES.expected(case))} for case in cases_of(BYTES, seed)]


def test_right_records_earn_the_points():
    assert verdict(text_of(right())).points == BYTES.points


@pytest.mark.parametrize(
    "text",
    [
        text_of(right(), token="b" * 32),
        text_of(right(), token=""),
        text_of(right()) + "\n" + text_of(right()),
        text_of(right() + right()),
        text_of(right(), echo=None),
        text_of(right(), echo={"kind": "value", "value": {"number": 1}}),
        text_of(right(), idle=None),
        text_of(right(), idle=right()[0]),
        text_of(right(seed=2)),
        text_of(right()[:-1]),
        text_of(right(), more=1),
    ],
)
def test_records_that_are_right_but_for_one_thing_earn_nothing(text):
    result = verdict(text)
    assert (result.points, result.outcome) == (0, "failed") and result.message


def damaged(records):
    return f'{{"records": {records}, "idle": null, "echo": null}}'


NOT_RECORDS = ["", "null", "[]", "{}", "[[", "1" * 5000, "[" * 100_000, "\0", "é" * 10, *map(damaged, (
    "1",
    "[]",
    '[{"kind": "value"}]',
    '[{"kind": ["value"], "value": 1}]',
    '[{"kind": "value", "value": 1e999}]',
    '[{"kind": "raised", "type": 1, "message": 2, "where": 3}]',
    '[{"kind": "value", "value": {"__array__": "O", "shape": [1], "data": [1]}}]',
    '[{"kind": "value", "value": {"__array__": "float64", "shape": [-1, -1], "data": [1]}}]',
    "[" * 50 + "]" * 50,
    '"' + "x" * 3_000_000 + '"',
))]  # fmt: skip


@pytest.mark.parametrize("text", NOT_RECORDS, ids=lambda text: text[:20])
@pytest.mark.parametrize("token", [TOKEN + "\n", ""])
def test_text_that_is_no_list_of_records_earns_nothing_and_raises_nothing(token, text):
    result = verdict(token + text)
    assert result.points == 0 and result.message and result.try_this


@pytest.mark.parametrize("ended", [end for end in Ended if end is not Ended.FINISHED])
def test_every_end_is_told_in_words_to_act_on(ended):
    result = verdict("", ended, code=-11, seconds=30.2, memory=3 << 30)
    assert (result.points, result.possible) == (0, BYTES.points)
    assert len(result.message) > 40 and result.try_this and "{" not in result.message


def test_what_was_no_fault_of_the_answers_is_not_graded_and_shown_to_the_instructor():
    result = verdict("", Ended.BROKEN, printed="no space left")
    assert result.outcome == UNGRADED and "no space left" in result.look[0]


@pytest.mark.parametrize("kind", ["SyntaxError", "IndentationError", "NameError"])
def test_an_error_before_there_is_an_answer_shows_no_case(kind):
    raised = {"kind": "raised", "type": kind, "message": "…", "where": "line 2: x"}
    result = verdict(text_of([raised]))
    assert (result.outcome, result.about, result.where) == ("raised", "", "line 2: x")


def test_an_answer_to_one_case_that_python_cannot_read_shows_no_case():
    one = dataclasses.replace(BYTES, cases=lambda random: [{"about": "the case", "workers": 2}])
    one = dataclasses.replace(one, expected=lambda case: 1, mistakes=[])
    records = [{"kind": "raised", "type": "SyntaxError", "message": "…", "where": "line 2: x"}]
    told = verdicts.verdict(one, ANSWER, Raw(Ended.FINISHED, text_of(records)), 1, TOKEN)
    assert (told.outcome, told.about) == ("raised", "")


def test_an_error_in_a_case_shows_the_case():
    raised = {"kind": "raised", "type": "ZeroDivisionError", "message": "…", "where": "line 2: x"}
    assert verdict(text_of([raised] * len(right()))).about


def test_a_result_can_be_kept_as_json():
    result = verdict(text_of([{**record, "value": {"bytes sent": 1}} for record in right()]))
    assert result.lines and Result.from_json(json.loads(json.dumps(result.to_json()))) == result


def test_plain_data_is_made_without_what_an_answer_can_change(monkeypatch):
    monkeypatch.setattr(np, "asarray", lambda *_, **__: np.zeros(3))
    assert plain(np.arange(3)).tolist() == [0, 1, 2]


# --- whatever a hostile process sends instead of a value, the judge gives a verdict

ODD = [None, True, "text", "", -1, 0, 1e300, float("nan"), float("inf"), [], {}, [1, 2, 3], [[1], [2, 3]]]
ODD += [{"a": 1}, [None], 10**30, "x" * 300, np.zeros((2, 3)), np.zeros(0), np.array([True, False])]


def twisted(value, depth=0):
    """The value changed in one place, in many ways."""
    yield from ODD
    if isinstance(value, dict):
        yield {**value, "extra": 1}
        for key in value:
            yield {name: item for name, item in value.items() if name != key}
            yield from ({**value, key: odd} for odd in (twisted(value[key], depth + 1) if depth < 2 else ODD))
    elif isinstance(value, list):
        yield from (value + value, value[:-1], value[::-1], *([odd, *value[1:]] for odd in ODD))
    elif isinstance(value, np.ndarray):
        yield from (np.stack([value, value]), value * float("nan"), value * 3)


@pytest.mark.parametrize("exercise", all_exercises(), ids=lambda exercise: exercise.id)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_judge_gives_a_verdict_on_anything(exercise):
    cases = cases_of(exercise)
    expected = [plain(exercise.expected(case)) for case in cases]
    # Without the code of mistakes, and with the expected results as they are: both may take long.
    known = {
        "cases": lambda _: [{"at": i} for i in range(len(cases))],
        "expected": lambda case: expected[case["at"]],
    }
    alone = dataclasses.replace(exercise, mistakes=[], **known)
    for value in twisted(expected[0]):
        try:
            records = from_text(to_text([{"kind": "value", "value": v} for v in [value, *expected[1:]]]))
        except NotPlain:
            continue
        lines = judging.judge(alone, records).lines
        assert all(isinstance(text, str) for line in lines for text in line.texts())
        for mistake in exercise.mistakes:
            assert isinstance(
                judging._explained(exercise, mistake, cases[0], records[0], expected[0])[0], str
            )
            if mistake.recognises:
                judging._asked(mistake, cases, records, expected)


def test_right_results_are_computed_once_for_many_answers():
    seen = []
    exercise = dataclasses.replace(BYTES, expected=lambda case: seen.append(case) or BYTES.expected(case))
    assert all(judging.judge(exercise, right(), seed=1).passed for _ in range(3))
    assert len(seen) == len(cases_of(BYTES, 1))
    assert not judging.judge(exercise, right(seed=1), seed=2).passed  # another seed, other right results
