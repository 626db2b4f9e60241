"""Where the time of a step goes: told from the records of all workers together."""

import math
import time

import pytest

from course_utils.timing import PHASES, Recorder, Step, median, phases


def step(number, begin, ready, computed, end, **more):
    return Step(number, begin, ready, computed, end, **{"examples": 8, "loss": 1.0} | more)


def test_the_parts_of_a_step_add_up_to_it():
    one = step(0, 10.0, 10.5, 12.0, 12.25)
    assert (one.waiting, one.compute, one.exchange, one.seconds) == (0.5, 1.5, 0.25, 2.25)
    assert one.rate == pytest.approx(8 / 2.25)


def test_what_fit_cannot_tell_is_none():
    one = step(0, 10.0, 10.5, None, 12.0)
    assert one.compute is None and one.exchange is None and one.waiting == 0.5


def test_waiting_for_others_lasts_until_the_last_worker_has_its_gradients():
    fast, slow = step(0, 100.0, 101.0, 102.0, 105.5), step(0, 100.0, 101.0, 105.0, 105.5)
    on_fast, on_slow = phases([[fast], [slow]])
    assert on_fast == [
        ("wait for data", 0, 1),
        ("compute", 1, 2),
        ("wait for others", 2, 5),
        ("all-reduce", 5, 5.5),
    ]
    assert [name for name, *_ in on_slow] == list(PHASES)
    assert on_slow[2] == ("wait for others", 5, 5)  # the straggler is the one who does not wait


def test_spans_of_a_worker_follow_each_other_without_a_gap():
    workers = [[step(n, n + w / 9, n + 0.2, n + 0.5 + w / 5, n + 0.9) for n in range(3)] for w in (0, 1)]
    for spans in phases(workers):
        for i in range(0, 12, 4):
            ends, starts = [e for _, _, e in spans[i : i + 3]], [s for _, s, _ in spans[i + 1 : i + 4]]
            assert ends == starts


def test_clocks_that_disagree_a_little_make_no_negative_span():
    ahead = [[step(0, 0.0, 0.1, 0.9, 1.0)], [step(0, 0.0, 0.1, 1.05, 1.2)]]
    assert all(end >= start for spans in phases(ahead) for _, start, end in spans)


def test_steps_that_another_worker_does_not_have_are_not_split():
    on_0, _ = phases([[step(0, 0, 1, 2, 3), step(1, 3, 4, 5, 6)], [step(0, 0, 1, 2, 3)]])
    assert [name for name, *_ in on_0] == [*PHASES, "wait for data", "compute"]
    assert phases([[], []]) == [[], []]


def test_the_median_is_not_moved_by_one_slow_step():
    assert median([3, 1, 1000]) == 3 and median([4, 1, 2, 3]) == 2.5 and math.isnan(median([]))


class Traced:
    """Stands for a tf.function that was traced so often."""

    traces = 0

    def experimental_get_tracing_count(self):
        return self.traces


def test_a_recorder_notes_the_moments_in_order_and_marks_what_was_traced():
    function, reports = Traced(), []
    record = Recorder(function, report=reports.append)
    for number in range(3):
        before = time.time()
        with record.step(examples=16) as now:
            now.ready()
            now.computed(loss=0.5)
            function.traces += number == 1
        made = record.steps[-1]
        assert before <= made.begin <= made.ready <= made.computed <= made.end <= time.time()
    assert [made.traced for made in record.steps] == [False, True, False]
    assert [made.number for made in record.steps] == [0, 1, 2]
    assert [Step(**report) for report in reports] == record.steps and record.steps[0].loss == 0.5


def test_a_step_that_raises_is_not_recorded():
    record = Recorder()
    with pytest.raises(ZeroDivisionError), record.step(examples=1):
        1 / 0  # noqa: B018
    assert record.steps == []
