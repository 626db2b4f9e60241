"""Plain data: what may pass from an answer to its judge, how it travels, when two values are the same."""

import numpy as np
import pytest
import tensorflow as tf

from course_utils.exercises.plain import NotPlain, decode, encode, plain, same


@pytest.mark.parametrize(
    "value, as_plain",
    [
        (np.float32(0.5), 0.5),
        (tf.constant(3), 3),
        (tf.constant("text"), "text"),
        (tf.constant(True), True),
        ((1, (2, 3)), [1, [2, 3]]),
        ({1: None}, {"1": None}),
    ],
    ids=str,
)
def test_other_kinds_become_plain(value, as_plain):
    assert plain(value) == as_plain and type(plain(value)) is type(as_plain)


@pytest.mark.parametrize(
    "value",
    [
        1,
        2.5,
        float("inf"),
        "é",
        True,
        None,
        [1, [2]],
        {"a": [None]},
        np.ones((2, 0)),
        np.arange(6).reshape(2, 3),
    ],
    ids=str,
)
def test_plain_data_travels_unchanged(value):
    back = decode(encode(value))
    assert same(back, value, tolerance=0) and type(back) is type(value)
    if isinstance(value, np.ndarray):
        assert (back.dtype, back.shape) == (value.dtype, value.shape)


def test_bfloat16_and_nan_travel():
    assert decode(encode(tf.constant([1.5], tf.bfloat16))).dtype == np.float32
    assert np.isnan(decode(encode(float("nan"))))


def nest(depth):
    return [nest(depth - 1)] if depth else 1


@pytest.mark.parametrize(
    "value",
    [object(), len, {(1, 2): 3}, nest(50), [0] * 50_000, np.zeros(50_000), "x" * 50_000, 10**100, {1, 2}, 1j],
    ids=lambda value: str(value)[:20],  # not as far as an address in memory
)
def test_what_is_not_plain_or_too_much_is_refused(value):
    with pytest.raises(NotPlain):
        plain(value)


class Sneaky(int):
    def __eq__(self, other):
        return True

    __hash__ = int.__hash__


class SneakyText(str):
    def __eq__(self, other):
        return True

    __hash__ = str.__hash__


def test_a_number_or_text_that_claims_to_equal_everything_is_made_plain():
    assert not same(plain(Sneaky(1)), 2) and type(plain(Sneaky(1))) is int
    assert not same(plain(SneakyText("a")), "b") and type(plain(SneakyText("a"))) is str


@pytest.mark.parametrize(
    "left, right, equal",
    [
        (1.0, 1.0 + 1e-7, True),
        (1.0, 1.001, False),
        (1, 1.0, True),
        (True, 1, False),
        ("1", 1, False),
        (None, 0, False),
        (float("nan"), float("nan"), True),
        (float("nan"), 0.0, False),
        (float("inf"), float("inf"), True),
        (1e-12, 0.0, True),
        (0.001, 0.0, False),
        ([1e6, 1e-3], [1e6, 2e-3], True),
        ([1, 2], np.array([1.0, 2.0]), True),
        ([1, 2], [1, 2, 3], False),
        ([[1, 2], [3]], [[1, 2], [3]], True),
        (["a", 1], ["a", 1.0], True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        (np.ones((2, 2)), np.ones(4), False),
        ([], [], True),
        (np.array([True]), np.array([True]), True),
        (np.array([True]), np.array([False]), False),
    ],
)
def test_when_two_values_are_the_same(left, right, equal):
    assert same(left, right) is equal
