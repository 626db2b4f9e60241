"""Verdicts in lessons 12 to 14 on answers that were once misjudged: accepted, refused, or wrongly named.

That known mistakes get their names, and right answers pass, is tested for every exercise elsewhere.
"""

import urllib.request

import numpy as np
import pytest

from course_utils.exercises import all_exercises, returned
from course_utils.exercises.judging import judge
from course_utils.exercises.observing import observe

EXERCISES = {exercise.id: exercise for exercise in all_exercises()}


def verdict_on(name, answer):
    return judge(EXERCISES[name], observe(EXERCISES[name], answer))


def test_a_pair_is_asked_for_by_an_example_of_a_pair():
    told = verdict_on("13.plan_shares", lambda speeds, global_batch: 48).message
    assert "should be a pair, such as (shares, factors), but is 48" in told
    assert 'such as (2, "data")' in verdict_on("14.straggler", lambda trace: 2).message
    with pytest.raises(returned.Unusable, match=r"a list of 2, such as \[1, 2\], but"):
        returned.items(3, "the shares", 2)


def test_a_wrong_worker_is_named_and_no_ratio_of_numbers():
    verdict = verdict_on("14.straggler", lambda trace: (0, "data"))
    assert "times too" not in verdict.message and "worker 0" in str(verdict.lines)


def test_a_whole_model_in_place_of_a_block_is_called_a_model():
    import keras

    def residual_block(x, filters, stride):
        return keras.Model(x, keras.layers.Conv2D(filters, 3)(x))

    assert "a whole Keras model" in verdict_on("12.residual_block", residual_block).message


def test_a_constant_rate_is_no_error_of_the_check():
    import keras

    def recipe(model, examples, global_batch, epochs):
        return (
            keras.optimizers.SGD(0.003, momentum=0.9),
            lambda images, labels: 1.0,
            lambda images: images[:, 0],
        )

    verdict = verdict_on("12.recipe", recipe)
    assert verdict.mistake == "no schedule" and "0.003 in every update" in verdict.message


def test_weights_that_would_be_downloaded_are_named_at_once_and_nothing_is_fetched(monkeypatch):
    import keras

    def another_network(size, classes):
        base = keras.applications.VGG16(include_top=False, pooling="avg")
        layers = [keras.Input((size, size, 3)), keras.layers.Rescaling(1 / 255), base]
        return keras.Sequential([*layers, keras.layers.Dense(classes)])

    asked = []
    monkeypatch.setattr(urllib.request, "urlopen", lambda *what, **how: asked.append(what))
    assert verdict_on("12.another_network", another_network).mistake == "pretrained weights"
    assert not asked


def test_vgg16_from_random_weights_is_right():
    import keras

    def another_network(size, classes):
        base = keras.applications.VGG16(
            include_top=False, pooling="avg", weights=None, input_shape=(size, size, 3)
        )
        layers = [keras.Input((size, size, 3)), keras.layers.Rescaling(1 / 255), base]
        return keras.Sequential([*layers, keras.layers.Dense(classes)])

    assert verdict_on("12.another_network", another_network).passed


def test_a_network_that_is_too_large_for_the_check_is_told_so_before_it_runs():
    import keras

    def another_network(size, classes):
        layers = [keras.layers.Flatten(), keras.layers.Dense(5000), keras.layers.Dense(classes)]
        return keras.Sequential([keras.Input((size, size, 3)), *layers])

    verdict = verdict_on("12.another_network", another_network)
    assert not verdict.passed and "weights. The check takes one step" in verdict.message
    assert "60,000,000" in verdict.message and verdict.mistake is None


def random_k(make):
    """Random-k with what is left kept; `make` gives the generator of a step."""

    def compress(gradient, left, budget, meet):
        wanted = gradient + left
        places = make().choice(len(wanted), budget // 8, replace=False).astype(np.int32)
        total, kept = np.zeros_like(wanted), wanted.copy()
        for values, where in meet((wanted[places], places)):
            np.add.at(total, where, values)
        kept[places] = 0
        return total, kept

    return compress


def test_places_drawn_at_random_lose_nothing_either():
    for make in (lambda: np.random.default_rng(), lambda: np.random):
        assert verdict_on("13.compress", random_k(make)).passed


def test_a_generator_from_outside_is_told_and_not_what_it_seems_to_lose():
    generator = np.random.default_rng(0)
    told = verdict_on("13.compress", random_k(lambda: generator)).message
    assert "does something else when it is called again" in told and "make the generator inside" in told


def test_a_check_leaves_the_learners_own_luck_alone():
    np.random.seed(3)
    wanted = np.random.rand()
    np.random.seed(3)
    verdict_on("13.compress", random_k(lambda: np.random))
    assert np.random.rand() == wanted


def test_averaged_weights_are_told_to_be_averaged():
    def update_with_rates(weight, gradient, rate, all_reduce):
        return all_reduce("MEAN", weight - rate * gradient)

    verdict = verdict_on("13.update_with_rates", update_with_rates)
    assert "the mean of the new weights does so as well" in verdict.message
