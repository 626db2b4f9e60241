"""The networks: their shapes, sizes, logits and seeds."""

import keras
import numpy as np
import pytest

from course_utils import devices, models

devices.simulate(4)

ALL = {models.cnn: 175_514, models.mlp: 101_770, models.small_cnn: 2_970, models.linear: 7_850}


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).integers(0, 256, (4, 28, 28, 1), np.uint8)


@pytest.mark.parametrize("make", ALL)
def test_a_model_is_built_and_gives_ten_logits(make, images):
    model = make()
    assert model.count_params() == ALL[make]
    logits = model(images).numpy()
    assert logits.shape == (4, 10) and logits.dtype == np.float32
    assert logits.min() < 0  # no softmax at the end
    np.testing.assert_allclose(model(images.astype(np.float32)), logits, rtol=1e-6)  # bytes or floats


def test_the_cnn_is_the_network_of_lesson_05():
    kinds = [
        (type(layer).__name__, getattr(layer, "filters", getattr(layer, "units", None)))
        for layer in models.cnn().layers
    ]
    assert kinds == [
        ("Rescaling", None),
        ("Conv2D", 64),
        ("MaxPooling2D", None),
        ("Conv2D", 80),
        ("MaxPooling2D", None),
        ("Flatten", None),
        ("Dense", 64),
        ("Dense", 10),
    ]


def test_the_same_seed_gives_the_same_weights_and_no_seed_does_not():
    first, again, other = models.cnn(seed=3), models.cnn(seed=3), models.cnn(seed=4)
    for a, b in zip(first.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(first.get_weights()[0], other.get_weights()[0])
    assert not np.array_equal(models.cnn().get_weights()[0], models.cnn().get_weights()[0])
    kernels = [w for w in models.mlp(hidden=(64, 64, 64), seed=1).get_weights() if w.shape == (64, 64)]
    assert not np.array_equal(*kernels)  # layers of one shape start differently


def test_a_seed_leaves_global_random_state_alone():
    keras.utils.set_random_seed(1)
    wanted = np.random.rand(), float(keras.random.uniform(()))
    keras.utils.set_random_seed(1)
    models.cnn(seed=5)
    assert (np.random.rand(), float(keras.random.uniform(()))) == wanted


def test_mixed_bfloat16_keeps_weights_and_logits_in_float32(images):
    model = models.small_cnn(seed=0, dtype="mixed_bfloat16")
    conv = next(layer for layer in model.layers if isinstance(layer, keras.layers.Conv2D))
    assert conv.compute_dtype == "bfloat16"
    assert {str(weight.dtype) for weight in model.weights} == {"float32"}
    logits = model(images)
    assert logits.dtype == np.float32
    np.testing.assert_allclose(logits, models.small_cnn(seed=0)(images), atol=0.02)
