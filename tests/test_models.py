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


def test_resnet50_is_version_1_5_with_as_many_weights_as_elsewhere():
    model = models.resnet50()
    trained = sum(int(np.prod(variable.shape)) for variable in model.trainable_variables)
    assert trained == 25_557_032  # as torchvision counts its ResNet-50
    halving = [layer for layer in model.layers[5:] if getattr(layer, "strides", None) == (2, 2)]
    sizes = [layer.kernel_size for layer in halving if isinstance(layer, keras.layers.Conv2D)]
    assert (
        sorted(sizes) == [(1, 1)] * 3 + [(3, 3)] * 3
    )  # projections, and the 3 × 3 of a block, not its 1 × 1
    assert model.output_shape == (None, 1000) and model.layers[-1].activation is keras.activations.linear


def test_a_block_of_resnet50_starts_as_the_identity():
    gammas = [w.numpy() for w in models.resnet50().trainable_variables if w.name == "gamma"]
    assert sum(not gamma.any() for gamma in gammas) == 3 + 4 + 6 + 3


def test_a_residual_network_projects_only_where_shapes_change(images):
    model = models.resnet_small(seed=0)
    assert model.count_params() == 20_146 and model(images).shape == (4, 10)
    kernels = [tuple(w.shape) for w in model.weights if len(w.shape) == 4]
    assert [shape for shape in kernels if shape[:2] == (1, 1)] == [(1, 1, 8, 16), (1, 1, 16, 32)]
    assert models.resnet_small(image=(32, 32, 3), classes=7).output_shape == (None, 7)


def test_residual_networks_start_from_their_seed():
    first, again, other = (models.resnet_small(seed=seed).get_weights() for seed in (3, 3, 4))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0], other[0])


def flags(model):
    return {
        layer.synchronized for layer in model.layers if isinstance(layer, keras.layers.BatchNormalization)
    }


def test_every_normalisation_is_synchronised_if_asked_for():
    assert flags(models.resnet_small()) == {True}
    inner = models.resnet_small(synchronized=False)
    assert flags(inner) == {False}
    outer = models.synchronise_batch_norm(keras.Sequential([keras.Input(models.IMAGE), inner]))
    assert flags(inner) == {True} and flags(keras.models.clone_model(inner)) == {True}
    assert outer.layers[0] is inner


def test_an_application_gives_logits_of_untrained_weights_and_synchronises():
    model = models.application("MobileNetV3Small", 64)
    assert flags(model) == {True}
    assert (model.input_shape, model.output_shape) == ((None, 64, 64, 3), (None, 1000))
    assert any((model(np.zeros((1, 64, 64, 3), "float32"), training=False) < 0).numpy().ravel())
