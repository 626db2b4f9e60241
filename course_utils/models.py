"""The networks of the course, from pixels to logits.

All take images with pixels from 0 to 255, uint8 or float, and return logits: no softmax, the losses expect
logits. Unless they say otherwise the images have shape (batch, 28, 28, 1) and the logits (batch, 10). Scaling
is the first layer, so that the data travel as bytes, a quarter of float32, and who restores a model need not
know how its data were prepared.

Every model comes out built: under a strategy, variables must exist before the first distributed step. `seed`
fixes the initial weights without touching global random state.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import keras
import numpy as np
from keras import layers

IMAGE = (28, 28, 1)
CLASSES = 10
# Of the three colours over ImageNet's training images, as shares of 255, as is usual since Caffe and Torch.
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_DEVIATION = (0.229, 0.224, 0.225)


def cnn(seed: int | None = None, dtype: str = "float32") -> keras.Sequential:
    """Lesson 05's network: conv 64, pool, conv 80, pool, dense 64, dense 10 (logits); 175,514 weights.

    `dtype` is a Keras dtype policy; with "mixed_bfloat16" the weights and the logits stay float32. "float64"
    computes everything in float64, to tell rounding from mistakes.
    """
    return _network(
        [("conv", 64), ("pool",), ("conv", 80), ("pool",), ("flatten",), ("dense", 64)],
        seed=seed,
        dtype=dtype,
    )


def mlp(hidden: Sequence[int] = (128,), seed: int | None = None, dtype: str = "float32") -> keras.Sequential:
    """Dense layers of the sizes in `hidden` with ReLU, and ten logits; 101,770 weights as it stands."""
    return _network([("flatten",), *(("dense", size) for size in hidden)], seed=seed, dtype=dtype)


def small_cnn(seed: int | None = None, dtype: str = "float32") -> keras.Sequential:
    """A network for quick experiments: conv 8, pool, pool, dense 10 (logits); 2,970 weights."""
    return _network([("conv", 8), ("pool",), ("pool",), ("flatten",)], seed=seed, dtype=dtype)


def linear(seed: int | None = None, dtype: str = "float32") -> keras.Sequential:
    """Ten logits straight from the pixels; 7,850 weights."""
    return _network([("flatten",)], seed=seed, dtype=dtype)


def resnet_small(
    seed: int | None = None,
    dtype: str = "float32",
    *,
    widths: Sequence[int] = (8, 16, 32),
    image: tuple[int, int, int] = IMAGE,
    classes: int = CLASSES,
    synchronized: bool = True,
) -> keras.Model:
    """A residual network for images of 28 or 32 pixels: a block a width, at half the size each time.

    Logits of shape (batch, `classes`); 20,146 weights as it stands. `synchronized` lets BatchNormalization
    ask all replicas for their sums; without it each replica normalises by its own share of the batch.
    """
    make = _Maker(seed, dtype, synchronized)
    pixels = keras.Input(image)
    x = layers.Rescaling(1 / 255, dtype=dtype)(pixels)
    x = make.convolution(x, widths[0], size=3, stride=2)
    for number, width in enumerate(widths):
        x = make.block(x, width, stride=2 if number else 1)
    return keras.Model(pixels, make.head(x, classes), name="resnet_small")


def resnet50(
    classes: int = 1000,
    image: tuple[int, int, int] = (224, 224, 3),
    seed: int | None = None,
    dtype: str = "float32",
    *,
    synchronized: bool = True,
) -> keras.Model:
    """ResNet-50, version 1.5 (a block halves the size in its 3 × 3 convolution): 25,557,032 trained weights.

    Takes pixels from 0 to 255 in three colours, normalises them by ImageNet's means and deviations, and
    gives logits of shape (batch, `classes`). The last gamma of each block starts at 0, so that a block starts
    as the identity. Sources: He et al., arXiv:1512.03385; Goyal et al., arXiv:1706.02677, section 5.1.
    """
    make = _Maker(seed, dtype, synchronized, last_gamma="zeros")
    pixels = keras.Input(image)
    mean, deviation = (255 * np.array(values) for values in (IMAGENET_MEAN, IMAGENET_DEVIATION))
    x = layers.Normalization(mean=mean, variance=deviation**2, dtype=dtype)(pixels)
    x = make.convolution(x, 64, size=7, stride=2)
    x = layers.MaxPooling2D(3, 2, padding="same", dtype=dtype)(x)
    for number, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for place in range(blocks):
            x = make.bottleneck(x, width, stride=2 if number and not place else 1)
    return keras.Model(pixels, make.head(x, classes), name="resnet50")


def application(name: str, size: int) -> keras.Model:
    """A network of `keras.applications` by its name there, such as "MobileNetV3Small", to be trained anew.

    For pictures (size, size, 3) of 0 to 255; it gives logits of the 1000 classes of ImageNet, has no trained
    weights, and its BatchNormalization is synchronised. https://keras.io/api/applications/
    """
    model = getattr(keras.applications, name)(
        input_shape=(size, size, 3), weights=None, classifier_activation=None
    )
    return synchronise_batch_norm(model)


def synchronise_batch_norm(model: keras.Model) -> keras.Model:
    """The same model, every BatchNormalization of which asks all replicas for their sums from now on.

    For networks that were made elsewhere, such as those of `keras.applications`. Call it before the first
    step: a step that was traced already stays as it was.
    """
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            synchronise_batch_norm(layer)
        elif isinstance(layer, layers.BatchNormalization):
            layer.synchronized = True
    return model


def _network(plan, seed, dtype):
    model = keras.Sequential([keras.Input(IMAGE), layers.Rescaling(1 / 255, dtype=dtype)])
    for number, (kind, *size) in enumerate(plan):
        model.add(_LAYERS[kind](*size, dtype=dtype, **_start(kind, seed, number)))
    logits = dtype if dtype == "float64" else "float32"  # never less: the loss takes exponentials of them
    model.add(layers.Dense(CLASSES, dtype=logits, **_start("dense", seed, len(plan))))
    return model


_LAYERS = {
    "conv": lambda filters, **how: layers.Conv2D(filters, 3, activation="relu", **how),
    "pool": layers.MaxPooling2D,
    "flatten": layers.Flatten,
    "dense": lambda units, **how: layers.Dense(units, activation="relu", **how),
}


def _start(kind, seed, number):
    """The initializer of a layer's kernel: a different one for each layer, the same for the same seed."""
    if seed is None or kind not in ("conv", "dense"):
        return {}
    return {"kernel_initializer": keras.initializers.GlorotUniform(seed=1000 * seed + number)}


class _Maker:
    """Makes the parts of a residual network: other first weights for each, the same for the same seed."""

    def __init__(self, seed, dtype, synchronized, last_gamma="ones"):
        self.seed, self.dtype, self.last_gamma = seed, dtype, last_gamma
        # 0.9, not Keras' 0.99: after a few hundred steps the averages have to be those of the batches.
        self.norm = {"momentum": 0.9, "synchronized": synchronized, "dtype": dtype}
        self.made = itertools.count()

    def convolution(self, x, filters, size, stride=1, relu=True, gamma="ones"):
        """Convolution without bias (the normalisation has one), BatchNormalization, and perhaps ReLU."""
        start = keras.initializers.HeNormal(self._next_seed())
        how = {"padding": "same", "use_bias": False, "kernel_initializer": start, "dtype": self.dtype}
        x = layers.Conv2D(filters, size, stride, **how)(x)
        x = layers.BatchNormalization(gamma_initializer=gamma, **self.norm)(x)
        return layers.ReLU(dtype=self.dtype)(x) if relu else x

    def block(self, x, filters, stride):
        """Two 3 × 3 convolutions, and what came in added to them."""
        inner = self.convolution(x, filters, 3, stride)
        inner = self.convolution(inner, filters, 3, relu=False, gamma=self.last_gamma)
        return self._joined(x, inner, stride)

    def bottleneck(self, x, width, stride):
        """1 × 1, 3 × 3, 1 × 1 to four times the width, and what came in added to them."""
        inner = self.convolution(x, width, 1)
        inner = self.convolution(inner, width, 3, stride)
        inner = self.convolution(inner, 4 * width, 1, relu=False, gamma=self.last_gamma)
        return self._joined(x, inner, stride)

    def head(self, x, classes):
        """Mean over the picture, and logits: float32 at least, the loss takes exponentials of them."""
        logits = self.dtype if self.dtype == "float64" else "float32"
        x = layers.GlobalAveragePooling2D(dtype=self.dtype)(x)
        start = keras.initializers.RandomNormal(stddev=0.01, seed=self._next_seed())
        return layers.Dense(classes, kernel_initializer=start, dtype=logits)(x)

    def _joined(self, x, inner, stride):
        if stride != 1 or x.shape[-1] != inner.shape[-1]:  # then they cannot be added: project
            x = self.convolution(x, inner.shape[-1], 1, stride, relu=False)
        return layers.ReLU(dtype=self.dtype)(layers.Add(dtype=self.dtype)([x, inner]))

    def _next_seed(self):
        number = next(self.made)
        return None if self.seed is None else 1000 * self.seed + number
