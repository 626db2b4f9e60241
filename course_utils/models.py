"""The networks of the course, from pixels to logits.

All take images of shape (batch, 28, 28, 1) with pixels from 0 to 255, uint8 or float, and return logits of
shape (batch, 10): no softmax, the losses expect logits. Scaling to 0…1 is the first layer, so that the data
travel as bytes, a quarter of float32, and who restores a model need not know how its data were prepared.

Every model comes out built: under a strategy, variables must exist before the first distributed step. `seed`
fixes the initial weights without touching global random state.
"""

from __future__ import annotations

from collections.abc import Sequence

import keras
from keras import layers

IMAGE = (28, 28, 1)
CLASSES = 10


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
