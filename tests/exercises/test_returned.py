"""What an answer returned is taken, or refused in words that help."""

import numpy as np
import pytest
import tensorflow as tf

from course_utils.exercises import returned
from course_utils.exercises.returned import Unusable


@pytest.mark.parametrize(
    "value", [3, 3.0, np.float32(3), np.array(3), tf.constant(3.0), tf.constant(3, tf.bfloat16)]
)
def test_a_number_of_any_kind_is_taken(value):
    assert returned.number(value, "f") == 3


@pytest.mark.parametrize(
    "value, told",
    [
        (None, "is a `return` missing"),
        ("3", "the text '3'"),
        (True, "True"),
        ([1, 2], "a list with 2 entries"),
        (np.ones(4), r"an array of shape \(4,\) and type float64"),
        (tf.ones((2, 3)), r"a tensor of shape \(2, 3\) and type float32"),
        (len, "the function len itself: it was not called"),
        (object(), "something of type object"),
    ],
)
def test_what_is_no_number_is_told(value, told):
    with pytest.raises(Unusable, match=told) as caught:
        returned.number(value, "compute_loss")
    assert str(caught.value).startswith("compute_loss should give one number")


def test_a_value_for_each_replica_is_told_to_be_not_yet_reduced():
    from course_utils import devices

    values = devices.mirrored(2).run(lambda: tf.constant(1.0))
    with pytest.raises(Unusable, match="one for each replica, not yet reduced"):
        returned.number(values, "loss")


def test_an_array_has_to_have_the_shape_asked_for():
    assert returned.array([[1, 2]], "f", shape=(None, 2)).shape == (1, 2)
    with pytest.raises(Unusable, match=r"an array of shape \(any, 2\), but gave one of shape \(3,\)"):
        returned.array(tf.ones(3), "f", shape=(None, 2))


@pytest.mark.parametrize("value", [[[1], [1, 2]], ["a"], [None], {"a": 1}], ids=str)
def test_what_is_no_array_of_numbers_is_refused(value):
    with pytest.raises(Unusable, match="should give an array"):
        returned.array(value, "f")


@pytest.mark.parametrize("value", [[5, 6], (5, 6), np.array([5, 6]), tf.constant([5, 6])], ids=str)
def test_a_list_of_any_kind_is_taken(value):
    assert returned.items(value, "split", length=2) == [5, 6]


@pytest.mark.parametrize(
    "value, told",
    [(7, "is 7"), ([1], "has 1 entries"), ([1, None], "still has an empty place"), ("ab", "the text")],
)
def test_what_is_no_such_list_is_told(value, told):
    with pytest.raises(Unusable, match=told):
        returned.items(value, "split", length=2)


@pytest.mark.parametrize("value", [True, np.True_, tf.constant(True)], ids=str)
def test_a_truth_of_any_kind_is_taken(value):
    assert returned.truth(value, "f") is True


def test_numbers_are_no_truths_no_texts_and_no_dicts():
    for helper in (returned.truth, returned.text, returned.mapping):
        with pytest.raises(Unusable, match="f should be"):
            helper(1, "f")


def test_json_is_parsed_and_its_usual_damages_are_told_apart():
    assert returned.json_text('{"a": [1]}', "f") == {"a": [1]}
    with pytest.raises(Unusable, match=r"`json\.dumps` makes it"):
        returned.json_text({"a": 1}, "f")
    with pytest.raises(Unusable, match="single ones"):
        returned.json_text(str({"a": 1}), "f")
    with pytest.raises(Unusable, match="not JSON: Expecting"):
        returned.json_text("{", "f")
