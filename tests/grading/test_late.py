"""Late policies, as instructors write them."""

import pytest

from course_utils.errors import GradingError
from course_utils.grading.late import parse


@pytest.mark.parametrize(
    "policy, days, left",
    [
        ("10% per day", [0, 0.01, 1, 1.01, 3, 11], [8, 7.2, 7.2, 6.4, 5.6, 0]),
        ("10% per day, at most 50%", [4, 5, 6, 100], [4.8, 4, 4, 4]),
        ("10% of possible per day", [1, 5, 9], [7, 3, 0]),
        ("10% of possible per day, at most 50%", [1, 9], [7, 4]),
        ("10% of possible per day, at most 50% of possible", [1, 9], [7, 3]),
        ("1 point per day", [0.5, 2, 20], [7, 6, 0]),
        ("0.25 points per hour, at most 2 points", [1 / 24, 2 / 24, 30], [7.75, 7.5, 6]),
        ("0 after 3 days", [0, 3, 3.001, 9], [8, 8, 0, 0]),
        ("10% per day, 0 after 3 days", [3, 3.5], [5.6, 0]),
        ("10% per day, 1 day free", [0.5, 1, 1.5, 2.5], [8, 8, 7.2, 6.4]),
        ("10% a day, 15 minutes free", [10 / 1440, 16 / 1440], [8, 7.2]),
        ("50% per week", [1, 8], [4, 0]),
        ("10%/day,up to 30%", [9], [5.6]),
        ("No points after 1 week", [7, 8], [8, 0]),
        ("100% per day", [0, 1], [8, 0]),
    ],
)
def test_a_policy_leaves(policy, days, left):
    penalties = [parse(policy).penalty(earned=8.0, possible=10.0, days_late=late) for late in days]
    assert [8.0 - penalty for penalty in penalties] == pytest.approx(left)


def test_penalties_are_to_the_hundredth_and_never_more_than_was_earned():
    assert parse("10% per day").penalty(1 / 3, 3, 1) == 0.03
    assert parse("5 points per day").penalty(2.0, 10.0, 1) == 2.0
    assert parse("0 after 1 day").penalty(2.0, 10.0, 2) == 2.0
    assert parse("10% per day").penalty(0.0, 10.0, 2) == 0.0
    assert parse("10% per day").penalty(8.0, 10.0, -3) == 0.0


@pytest.mark.parametrize(
    "policy, told",
    [
        ("10% a fortnight", "cannot be read at '10% a fortnight'"),
        ("10% per day; at most 50%", "cannot be read at"),
        ("ten percent per day", "cannot be read at"),
        ("10 per day", "cannot be read at"),
        ("-10% per day", "cannot be read at"),
        ("10,5% per day", "cannot be read at '10'"),
        ("110% per day", "takes more than there is"),
        ("at most 50%", "does not say what being late costs"),
        ("1 day free", "does not say what being late costs"),
        (" , ", "does not say what being late costs"),
        ("0 after 3 days, at most 50%", 'says "at most", but not how much'),
        ("10% per day, 1 point per day", "says twice what a day costs"),
        ("1 point of possible per day", "points are of nothing"),
    ],
)
def test_a_policy_that_cannot_be_read_is_refused_with_examples(policy, told):
    with pytest.raises(GradingError, match=told) as error:
        parse(policy)
    assert '"10% per day, at most 50%"' in str(error.value)
