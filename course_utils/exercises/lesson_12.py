"""The exercises of lesson 12: a residual block, another architecture, and the recipe that trains them.

All are judged by what they compute: a block's output against NumPy, a recipe's loss against one device.
"""

import contextlib
import functools
import math
import sys
from unittest import mock

import numpy as np

from course_utils import errors
from course_utils.exercises import returned
from course_utils.exercises.model import Exercise, Mistake, lazy
from course_utils.exercises.replicas import quietly, strategy_of

tf = lazy("tensorflow")
keras = lazy("keras")
devices = lazy("course_utils.devices")
models = lazy("course_utils.models")
schedules = lazy("course_utils.schedules")

SYNCHRONISED = "BatchNormalization layers that ask all replicas"
ALL, SOME, NONE, THERE_ARE_NONE = "all", "some", "none of them", "there are no such layers"


def ready_for_replicas():
    """None; where TensorFlow has not started yet, it will have the devices that the last exercise needs."""
    with contextlib.suppress(errors.DeviceError):
        devices.simulate(4)


def layers_of(model):
    """All layers, those of nested models too."""
    for layer in model.layers:
        yield from layers_of(layer) if isinstance(layer, keras.Model) else [layer]


def norms_of(model):
    return [layer for layer in layers_of(model) if isinstance(layer, keras.layers.BatchNormalization)]


def how_synchronised(model):
    """Which of a model's BatchNormalization layers are synchronised, in words."""
    flags = {bool(layer.synchronized) for layer in norms_of(model)}
    return {(): THERE_ARE_NONE, (True,): ALL, (False,): NONE}.get(tuple(flags), SOME)


# --- 12.residual_block: a sum that fits ---------------------------------------------------------------

OUT_SHAPE = "shape of the output, without the batch"
KERNELS = "kernels"
OUTPUT = "output at one place, a number a channel"
MEANS = "output, mean of each channel"
EPSILON, GAMMA, BETA, MEAN, VARIANCE = 1e-3, 1.5, 0.25, 0.1, 2.0  # of every BatchNormalization in the check


def block_cases(random):
    return [
        {
            "about": f"{channels} to {filters} channels, stride {stride}",
            "filters": filters,
            "stride": stride,
            "x": random.normal(size=(2, 6, 6, channels)).astype("f4"),
            "seed": int(random.integers(1000)),
        }
        for channels, filters, stride in ((4, 4, 1), (3, 5, 1), (3, 5, 2), (4, 4, 2))
    ]


def observe_block(answer, case):
    """The block with given weights, in evaluation: the same weights for all kernels of one shape."""
    ready_for_replicas()
    channels = case["x"].shape[-1]
    pixels = keras.Input((6, 6, channels))
    try:
        output = answer(pixels, case["filters"], case["stride"])
    except ValueError as error:
        return {OUT_SHAPE: cannot_be_added(error)}
    if isinstance(output, keras.Model):
        raise returned.Unusable(
            "residual_block should give a tensor, but gave a whole Keras model: return the block's output, "
            "without `keras.Model(…)` around it."
        )
    if not isinstance(output, keras.KerasTensor):
        raise returned.Unusable(f"residual_block should give a tensor, but gave {returned.describe(output)}.")
    model = keras.Model(pixels, output)
    kernels = [weight for weight in model.weights if len(weight.shape) == 4]
    give_weights(model, case["seed"])
    return {
        OUT_SHAPE: list(output.shape[1:]),
        KERNELS: sorted(kernel_text(kernel.shape) for kernel in kernels),
        SYNCHRONISED: how_synchronised(model),
        **numbers_of(model(case["x"], training=False).numpy()),
    }


def numbers_of(output):
    """What is compared: all of the output would fill the card."""
    return {OUTPUT: output[0, 1, 1], MEANS: output.mean((0, 1, 2))}


def cannot_be_added(error):
    """What did not fit, in words; any other error is raised again."""
    text = str(error).lower()
    if "incompatible shapes" not in text and "broadcast" not in text:
        raise error
    return "a sum of two shapes that do not fit"


def kernel_text(shape):
    height, width, inputs, outputs = shape
    return f"{height} x {width}, {inputs} to {outputs}"


def kernel_of(shape, seed):
    """The kernel that the check gives to every convolution of this shape."""
    return np.random.default_rng([seed, *shape]).normal(0, 0.4, shape).astype("f4")


def give_weights(model, seed):
    for layer in norms_of(model):
        named = {"gamma": GAMMA, "beta": BETA, "moving_mean": MEAN, "moving_variance": VARIANCE}
        for weight in layer.weights:
            weight.assign(np.full(weight.shape, named.get(weight.name, 0.0), "f4"))
    for weight in model.weights:
        if len(weight.shape) == 4:
            weight.assign(kernel_of(tuple(weight.shape), seed))


def convolved(x, filters, size, stride, seed):
    """A convolution with "same" padding, and BatchNormalization in evaluation, in NumPy."""
    kernel = kernel_of((size, size, x.shape[-1], filters), seed).astype(float)
    places = -(-x.shape[1] // stride)
    missing = max((places - 1) * stride + size - x.shape[1], 0)
    around = (missing // 2, missing - missing // 2)
    padded = np.pad(x, [(0, 0), around, around, (0, 0)])
    output = np.zeros((len(x), places, places, filters))
    for row, column in np.ndindex(places, places):
        top, left = row * stride, column * stride
        window = padded[:, top : top + size, left : left + size]
        output[:, row, column] = np.tensordot(window, kernel, 3)
    return GAMMA * (output - MEAN) / math.sqrt(VARIANCE + EPSILON) + BETA


def needs_projection(case):
    return case["stride"] != 1 or case["x"].shape[-1] != case["filters"]


def expected_block(case):
    x, filters, stride, seed = case["x"].astype(float), case["filters"], case["stride"], case["seed"]
    inner = np.maximum(convolved(x, filters, 3, stride, seed), 0)
    inner = convolved(inner, filters, 3, 1, seed)
    shapes = [(3, 3, x.shape[-1], filters), (3, 3, filters, filters)]
    if needs_projection(case):
        shapes.append((1, 1, x.shape[-1], filters))
        x = convolved(x, filters, 1, stride, seed)
    return {
        OUT_SHAPE: list(inner.shape[1:]),
        KERNELS: sorted(map(kernel_text, shapes)),
        SYNCHRONISED: ALL,
        **numbers_of(np.maximum(x + inner, 0)),
    }


def a_block(
    shortcut="where needed",
    strides=(True, False),
    ends="relu of the sum",
    norm=True,
    synchronized=True,
    size=1,
    between=True,
    plain_shortcut=False,
    when=lambda stride, channels, filters: stride != 1 or channels != filters,
):
    """A residual block that may differ from the right one in one place."""

    def residual_block(x, filters, stride):
        def convolution(x, size, stride, norm=norm):
            x = keras.layers.Conv2D(filters, size, stride, padding="same", use_bias=not norm)(x)
            return keras.layers.BatchNormalization(synchronized=synchronized)(x) if norm else x

        inner = convolution(x, 3, stride if strides[0] else 1)
        inner = keras.layers.ReLU()(inner) if between else inner
        inner = convolution(inner, 3, stride if strides[1] else 1)
        if shortcut == "none":
            return keras.layers.ReLU()(inner)
        if shortcut == "pooled and padded" and (stride != 1 or x.shape[-1] != filters):
            x = keras.layers.MaxPooling2D(1, stride)(x)
            x = keras.ops.pad(x, [[0, 0], [0, 0], [0, 0], [0, filters - x.shape[-1]]])
        elif shortcut == "always" or (
            shortcut in ("where needed", "old size") and when(stride, x.shape[-1], filters)
        ):
            x = convolution(x, size, 1 if shortcut == "old size" else stride, norm and not plain_shortcut)
        if ends == "relu, then the sum":
            return keras.layers.Add()([x, keras.layers.ReLU()(inner)])
        total = keras.layers.Add()([x, inner])
        return total if ends == "no relu" else keras.layers.ReLU()(total)

    return residual_block


def with_a_bias(x, filters, stride):
    """Right too: a bias before BatchNormalization changes nothing but is wasted."""
    norm = functools.partial(
        keras.layers.BatchNormalization, synchronized=True, momentum=0.9, epsilon=1.001e-3
    )
    shortcut = x
    if x.shape[-1] != filters or stride > 1:
        shortcut = norm()(keras.layers.Conv2D(filters, 1, strides=stride)(x))
    x = keras.layers.Conv2D(filters, 3, strides=stride, padding="same", activation=None)(x)
    x = keras.layers.Activation("relu")(norm()(x))
    x = norm()(keras.layers.Conv2D(filters, 3, padding="same")(x))
    return keras.ops.relu(x + shortcut)


def lacks_the_projection(cases, seen, expected):
    """Right where what comes in fits; where it does not, no third convolution, or a sum that fails."""
    fits = [
        same_block(s, e) for c, s, e in zip(cases, seen, expected, strict=True) if not needs_projection(c)
    ]
    rest = [s for c, s in zip(cases, seen, strict=True) if needs_projection(c)]
    return all(fits) and all(len(s.get(KERNELS, [])) <= 2 for s in rest)


def same_block(seen, expected):
    same = all(seen.get(key) == expected[key] for key in (OUT_SHAPE, KERNELS, SYNCHRONISED))
    return same and all(
        np.allclose(seen[key], expected[key], rtol=2e-3, atol=2e-3) for key in (OUTPUT, MEANS)
    )


RESIDUAL_BLOCK = Exercise(
    id="12.residual_block",
    title="A sum that fits",
    points=3,
    length="about 9 lines",
    signature="residual_block(x, filters, stride)",
    slow=True,
    hints=[
        "Two 3 x 3 convolutions, each normalised, a ReLU between them; then what came in is added, and the "
        "last "
        "ReLU follows. The first convolution has the stride. What shape does `x` have, and what shape the "
        "rest?",
        "Where the stride is not 1, or the channels change, `x` has to be made to fit: a 1 x 1 convolution "
        "with "
        "that stride and that many filters, normalised too, without a ReLU.",
        '`keras.layers.Conv2D(filters, 3, stride, padding="same", use_bias=False)` and '
        "`keras.layers.BatchNormalization(synchronized=True)`; `keras.layers.Add()([x, inner])`.",
    ],
    cases=block_cases,
    observe=observe_block,
    expected=expected_block,
    tolerance=2e-3,
    mistakes=[
        Mistake(
            "no shortcut",
            a_block(shortcut="none"),
            went_wrong="The block gives what its two convolutions make of `x`, and `x` itself is not added: "
            "a "
            "plain network. Fifty such layers in a row hardly learn, which is what residual networks are "
            "for.",
            try_this="Add `x` before the last ReLU.",
        ),
        Mistake(
            "no projection",
            a_block(shortcut="identity"),
            went_wrong="Where stride and channels stay, the block is right. Where they change, `x` is added "
            "as it "
            "came, cut or padded: shapes that do not fit, or channels of zeros that nothing was learned for.",
            try_this="Where the shapes differ, pass `x` through a 1 x 1 convolution with the same stride, "
            "and "
            "normalise that too.",
            variants=[a_block(shortcut="pooled and padded")],
            recognises=lacks_the_projection,
        ),
        Mistake(
            "projection by 3 x 3",
            a_block(size=3),
            went_wrong="What came in is projected by a 3 x 3 convolution. It is right in place and stride, "
            "but only the channels have to be made to fit: a 1 x 1 does that with a ninth of the weights.",
            try_this="`keras.layers.Conv2D(filters, 1, stride, use_bias=False)` for the shortcut.",
        ),
        Mistake(
            "projection only where the stride changes",
            a_block(when=lambda stride, channels, filters: stride != 1),
            went_wrong="Where only the number of channels changes, `x` does not fit either, and you add it "
            "as it came.",
            try_this="Project `if stride != 1 or x.shape[-1] != filters`.",
        ),
        Mistake(
            "projection only where the channels change",
            a_block(when=lambda stride, channels, filters: channels != filters),
            went_wrong="Where only the stride is not 1, `x` does not fit either, and you add it as it came.",
            try_this="Project `if stride != 1 or x.shape[-1] != filters`.",
        ),
        Mistake(
            "the projection is not normalised",
            a_block(plain_shortcut=True),
            went_wrong="The two 3 x 3 convolutions are normalised, the projection is not.",
            try_this="A BatchNormalization after the 1 x 1 convolution, too.",
        ),
        Mistake(
            "no ReLU between the convolutions",
            a_block(between=False),
            went_wrong="Between the two convolutions there is no ReLU: two linear steps in a row can do no "
            "more than one.",
            try_this="ReLU after the first BatchNormalization.",
        ),
        Mistake(
            "projection where none is needed",
            a_block(shortcut="always"),
            went_wrong="Where stride and channels stay, `x` fits as it is, and you pass it through a "
            "convolution "
            "all the same: then no path is left on which a gradient comes back unchanged.",
            try_this="Project only `if stride != 1 or x.shape[-1] != filters`.",
        ),
        Mistake(
            "the shortcut keeps its size, or the stride is taken twice",
            a_block(shortcut="old size"),
            went_wrong="With a stride of 2 the two sides of the sum have pictures of different sizes.",
            try_this="The first 3 x 3 convolution and the projection have the stride, nothing else has.",
            variants=[a_block(strides=(True, True))],
        ),
        Mistake(
            "stride in the second convolution",
            a_block(strides=(False, True)),
            went_wrong="The shapes fit. But the first convolution works at full size and the second skips: "
            "four "
            "times the work in the first, and another network than the one that was asked for.",
            try_this="Give the stride to the first 3 x 3 convolution.",
        ),
        Mistake(
            "ReLU before the sum",
            a_block(ends="relu, then the sum"),
            went_wrong="The last ReLU is on the inner path alone. Then a block can only ever add to what "
            "came in, "
            "never take away.",
            try_this="Add first, then ReLU.",
        ),
        Mistake(
            "no ReLU after the sum",
            a_block(ends="no relu"),
            went_wrong="The sum leaves the block as it is. The next block's first convolution follows "
            "another "
            "linear step directly.",
            try_this="End with a ReLU of the sum.",
        ),
        Mistake(
            "statistics of its own for each replica",
            a_block(synchronized=False),
            went_wrong="The block computes what it should on one device. On several, each replica would "
            "normalise by its own share of the batch, and keep averages of its own (lessons 01 and 09).",
            try_this="`keras.layers.BatchNormalization(synchronized=True)`",
        ),
        Mistake(
            "not normalised",
            a_block(norm=False),
            went_wrong="There is no BatchNormalization. What comes out of a block then grows from block to "
            "block.",
            try_this="Normalise after each convolution, that of the projection too.",
        ),
    ],
    also_right=[with_a_bias],
)


# --- 12.another_network: swap the architecture --------------------------------------------------------

TAKES = "pictures it takes"
GIVES = "what it gives for each picture"
SCALED = "pixels are scaled"
STEP = "gradients of a training step"
KIND = "architecture"
ONCE, TWICE, NEVER = "once", "twice", "never"
WEIGHTS = "first weights"
IMAGENETS = "ImageNet's, not random ones"
MOST_WEIGHTS = 60_000_000  # what one step on this machine takes seconds for


def network_cases(random):
    classes = int(random.integers(11, 30))
    return [
        {
            "about": f"{classes} classes, pictures of 64 x 64 pixels",
            "size": 64,
            "classes": classes,
            "seed": int(random.integers(1000)),
        }
    ]


def observe_network(answer, case):
    """Shapes, kind of output, scaling and gradients of the network that the answer makes."""
    ready_for_replicas()
    model = model_from_random_weights(answer, case)
    if model is None:
        return {WEIGHTS: IMAGENETS}
    pictures = np.random.default_rng(case["seed"]).integers(0, 256, (2, case["size"], case["size"], 3))
    with tf.GradientTape() as tape:
        outputs, spread = forward(model, pictures.astype("f4"))
        loss = tf.reduce_sum(outputs**2)
    gradients = tape.gradient(loss, model.trainable_variables)
    return {
        TAKES: list(model.input_shape[1:]),
        GIVES: what_it_gives(outputs.numpy()),
        SCALED: how_scaled(spread),
        SYNCHRONISED: how_synchronised(model) if norms_of(model) else ALL,  # all of none
        STEP: gradients_in_words(gradients),
        KIND: "the same again: a ResNet" if "resnet" in model.name.lower() else "another one",
    }


def model_from_random_weights(answer, case):
    """The answer's model; None where it asks for weights that somebody trained."""

    def refuse(*_, **__):
        raise ValueError("Weights trained on ImageNet would be downloaded.")

    # Without a network, a download may take minutes to fail; and where it is kept, it would not.
    files = sys.modules[keras.utils.get_file.__module__]
    try:
        with mock.patch.object(files, "get_file", refuse):
            model = answer(case["size"], case["classes"])
    except ValueError as error:
        if "imagenet" not in str(error).lower():
            raise
        return None
    if not isinstance(model, keras.Model):
        raise returned.Unusable(
            f"another_network should give a Keras model, but gave {returned.describe(model)}."
        )
    if model.count_params() > MOST_WEIGHTS:
        raise returned.Unusable(
            f"{model.name} has {model.count_params():,} weights. The check takes one step with the network, "
            f"and takes those of up to {MOST_WEIGHTS:,}: give a smaller one, of the same family if you like."
        )
    return model


def forward(model, images):
    """The outputs in training, and the standard deviation of what enters the first convolution."""
    seen = []
    convolve = keras.layers.Conv2D.call

    def watched(layer, inputs, *args, **kwargs):
        seen.append(float(np.std(inputs.numpy())))
        return convolve(layer, inputs, *args, **kwargs)

    with mock.patch.object(keras.layers.Conv2D, "call", watched):
        outputs = model(tf.constant(images), training=True)
    return outputs, seen[0] if seen else 0.0


def what_it_gives(outputs):
    if outputs.ndim != 2:
        return f"an array of shape {returned.shape_text(outputs.shape[1:])}"
    sums = np.abs(outputs.sum(axis=1) - 1).max()
    kind = "probabilities" if outputs.min() >= 0 and sums < 1e-3 else "logits"
    return f"{outputs.shape[1]} {kind}"


def how_scaled(spread):
    """Pixels have a standard deviation of 74; what a network wants is between a tenth and a few."""
    return NEVER if spread > 10 else ONCE if spread > 0.05 else TWICE


def gradients_in_words(gradients):
    if any(gradient is None for gradient in gradients):
        return "some are missing"
    finite = all(bool(np.isfinite(np.asarray(gradient)).all()) for gradient in gradients)
    return f"{'finite' if finite else 'not finite'}, one for each weight" if gradients else "there are none"


def expected_network(case):
    return {
        TAKES: [case["size"], case["size"], 3],
        GIVES: f"{case['classes']} logits",
        SCALED: ONCE,
        SYNCHRONISED: ALL,
        STEP: "finite, one for each weight",
        KIND: "another one",
    }


def an_application(name="MobileNetV3Small", synchronise=True, scale=None, **how):
    """A network of keras.applications; `how` may take back what the right one says."""

    def another_network(size, classes):
        wanted = {"weights": None, "classes": classes, "classifier_activation": None} | how
        wanted = {key: value for key, value in wanted.items() if value is not ...}
        model = getattr(keras.applications, name)(input_shape=(size, size, 3), **wanted)
        if scale is not None:
            model = keras.Sequential([keras.Input((size, size, 3)), keras.layers.Rescaling(scale), model])
        return models.synchronise_batch_norm(model) if synchronise else model

    return another_network


def one_of_their_own(size, classes):
    return keras.Sequential(
        [
            keras.Input((size, size, 3)),
            keras.layers.Rescaling(1 / 127.5, offset=-1),
            keras.layers.SeparableConv2D(8, 3, 2, activation="relu"),
            keras.layers.Conv2D(16, 3, 2),
            keras.layers.BatchNormalization(synchronized=True),
            keras.layers.ReLU(),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(classes),
        ]
    )


def without_normalisation(size, classes):
    layers = [
        keras.layers.Rescaling(1 / 255),
        keras.layers.Conv2D(8, 3, 2, activation="relu"),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(classes),
    ]
    return keras.Sequential([keras.Input((size, size, 3)), *layers])


ANOTHER_NETWORK = Exercise(
    id="12.another_network",
    title="Another architecture",
    points=2,
    length="about 4 lines",
    signature="another_network(size, classes)",
    slow=True,
    time_limit=60,
    hints=[
        "`keras.applications` has dozens. Which arguments do they take besides `input_shape` and `classes`, "
        "and "
        "what do they assume if you say nothing?",
        "Say `weights=None` (else they look for ImageNet's) and `classifier_activation=None` (else the last "
        "layer "
        "is a softmax). Does your network scale its pixels itself? MobileNetV3 and EfficientNet do.",
        "Their BatchNormalization layers work for each replica alone: "
        "`cu.models.synchronise_batch_norm(model)`.",
    ],
    cases=network_cases,
    observe=observe_network,
    expected=expected_network,
    mistakes=[
        Mistake(
            "from_logits with a softmax output",
            an_application(classifier_activation=...),
            went_wrong="The network ends in a softmax, as those of `keras.applications` do unless told "
            "otherwise. "
            "Our loss expects logits and applies the softmax itself. Twice is not an error message, it is a "
            "training that learns less than it could: see below, where the network is trained.",
            try_this="`classifier_activation=None`",
        ),
        Mistake(
            "pretrained weights",
            an_application(weights=...),
            went_wrong="Without `weights=None` the network wants the weights that somebody else trained on "
            "ImageNet: a download, and, with its top on, 1,000 classes.",
            try_this="`weights=None`: start from random weights.",
            variants=[
                an_application(weights="imagenet"),
                an_application("VGG16", weights=..., include_top=False, pooling="avg"),
            ],
        ),
        Mistake(
            "1,000 classes",
            an_application(classes=1000),
            went_wrong=lambda case, seen, expected: (
                f"The network gives {seen[GIVES]}; there are {case['classes']} classes."
            ),
            try_this="Give it `classes=classes`.",
        ),
        Mistake(
            "no head",
            an_application(include_top=False),
            went_wrong="With `include_top=False` the network ends in a map of features: no number for each "
            "class.",
            try_this="Leave the top on, with `classes=classes`.",
        ),
        Mistake(
            "statistics of its own for each replica",
            an_application(synchronise=False),
            went_wrong="The BatchNormalization layers inside work for each replica alone: with 8 pictures a "
            "replica they normalise by 8 pictures, whatever the global batch.",
            try_this="`cu.models.synchronise_batch_norm(model)`",
        ),
        Mistake(
            "scaled twice",
            an_application(scale=1 / 255),
            went_wrong="You scale the pixels, and the network does so again: black and white are almost the "
            "same "
            "to it.",
            try_this="Hand pixels from 0 to 255 to a network that scales them itself.",
        ),
        Mistake(
            "never scaled",
            an_application(include_preprocessing=False),
            went_wrong="Pixels from 0 to 255 go into the first convolution as they are.",
            try_this="Some networks scale by themselves (MobileNetV3, EfficientNet); before others, put a "
            "`keras.layers.Rescaling`.",
        ),
    ],
    also_right=[
        one_of_their_own,
        without_normalisation,
        an_application("MobileNetV3Small", alpha=0.75, minimalistic=True),
    ],
)


# --- 12.recipe: assemble it ---------------------------------------------------------------------------

LOSS = "loss of the first batch, summed over the replicas"
RATES = "learning rate of the updates 0, half of the warm-up, its end, the middle, the last"
MOMENTUM = "momentum"
KIND_OF = "optimizer"
ITS_OWN = "weight decay of the optimizer itself"
CLASSES = "classes that it finds"
CHANGED = "looking changes the model"
WARMUP, BASE_RATE, DECAY, SMOOTHING = 5, 0.1, 1e-4, 0.1


def recipe_cases(random):
    """Models whose averages differ from any batch's: who normalises by the batch finds other classes."""
    return [
        {
            "about": f"{replicas} replica{'s' * (replicas > 1)}, a global batch of {batch}, {epochs} epochs",
            "replicas": replicas,
            "batch": batch,
            "examples": batch * int(random.integers(4, 9)),
            "epochs": epochs,
            **a_model_to_tell(random, batch),
        }
        for replicas, batch, epochs in ((1, 8, 20), (2, 16, 12))
    ]


def a_model_to_tell(random, batch):
    while True:
        case = {
            "images": random.normal(size=(batch, 3)).astype("f4"),
            "labels": random.integers(0, 3, batch),
            "weights": [
                random.normal(0, 4, (3, 4)).astype("f4"),
                random.normal(0, 3, 4).astype("f4"),
                random.uniform(2, 4, 4).astype("f4"),
                random.normal(0, 3, 4).astype("f4"),
                random.normal(0, 0.5, (4, 3)).astype("f4"),
                random.normal(0, 0.5, 3).astype("f4"),
            ],
            "mean": random.normal(0, 4, 4).astype("f4"),
            "variance": random.uniform(0.5, 3, 4).astype("f4"),
        }
        by_average, by_batch = (logits_of(case, training) for training in (False, True))
        top = np.sort(by_average, axis=1)
        clear = (top[:, -1] - top[:, -2]).min() > 1e-2  # no tie that rounding could decide
        if clear and (by_average.argmax(1) != by_batch.argmax(1)).sum() >= 2:
            return case


def logits_of(case, training):
    """What the model of the check gives on one device: dense, BatchNormalization, dense."""
    kernel, bias, gamma, beta, last_kernel, last_bias = (w.astype(float) for w in case["weights"])
    hidden = case["images"].astype(float) @ kernel + bias
    mean, variance = (hidden.mean(0), hidden.var(0)) if training else (case["mean"], case["variance"])
    return (gamma * (hidden - mean) / np.sqrt(variance + EPSILON) + beta) @ last_kernel + last_bias


def observe_recipe(answer, case):
    """The recipe's loss on real replicas, its rates, and what its model finds."""
    strategy = strategy_of(case["replicas"])
    with strategy.scope():
        model = the_model(case)
        made = returned.items(
            answer(model, case["examples"], case["batch"], case["epochs"]),
            "recipe",
            length=3,
            like="(optimizer, loss, classify)",
        )
    optimizer, loss, classify = made
    if not isinstance(optimizer, keras.optimizers.Optimizer) or not callable(loss) or not callable(classify):
        raise returned.Unusable(
            "recipe should give an optimizer and two functions: (optimizer, loss, classify)."
        )
    with quietly():
        shares = strategy.run(on_a_replica(loss, case), args=(numbers(strategy),))
    model.layers[1].moving_mean.assign(case["mean"])
    model.layers[1].moving_variance.assign(case["variance"])
    found = returned.array(classify(tf.constant(case["images"])), "classify", shape=(case["batch"],))
    moved = np.abs(model.layers[1].moving_mean.numpy() - case["mean"]).max() > 1e-6
    return {
        LOSS: sum(float(share) for share in strategy.experimental_local_results(shares)),
        RATES: [rate_at(optimizer, step) for step in steps_of(case)],
        MOMENTUM: float(getattr(optimizer, "momentum", 0.0) or 0.0),
        KIND_OF: kind_of(optimizer),
        ITS_OWN: f"{optimizer.weight_decay:g}" if optimizer.weight_decay else "none",
        CLASSES: found.tolist(),
        CHANGED: bool(moved),
    }


def kind_of(optimizer):
    nesterov = ", with Nesterov's momentum" if getattr(optimizer, "nesterov", False) else ""
    return type(optimizer).__name__ + nesterov


def the_model(case):
    layers = [
        keras.layers.Dense(4),
        keras.layers.BatchNormalization(synchronized=True),
        keras.layers.Dense(3),
    ]
    model = keras.Sequential([keras.Input((3,)), *layers])
    for variable, value in zip(model.trainable_variables, case["weights"], strict=True):
        variable.assign(value)
    layers[1].moving_mean.assign(case["mean"])
    layers[1].moving_variance.assign(case["variance"])
    return model


def numbers(strategy):
    return strategy.experimental_distribute_values_from_function(
        lambda context: context.replica_id_in_sync_group
    )


def on_a_replica(loss, case):
    """The function that gives one replica its share of the batch."""

    def share_of_the_loss(replica):
        size = case["batch"] // case["replicas"]
        part = slice(int(replica) * size, (int(replica) + 1) * size)
        share = loss(tf.constant(case["images"][part]), tf.constant(case["labels"][part]))
        return tf.constant(returned.number(share, "loss"), tf.float32)

    # Not converted by AutoGraph: an error shall point at the learner's own line.
    return tf.autograph.experimental.do_not_convert(share_of_the_loss)


def rate_at(optimizer, step):
    optimizer.iterations.assign(step)
    rate = optimizer.learning_rate  # a tensor of a schedule, or the variable that holds a constant rate
    return float(keras.ops.convert_to_numpy(getattr(rate, "value", rate)))


def steps_of(case):
    """The updates at which the rate is looked at: in the warm-up, at its end, in the middle, the last one."""
    an_epoch = case["examples"] // case["batch"]
    warmup, total = WARMUP * an_epoch, case["epochs"] * an_epoch
    return [0, warmup // 2, warmup, (warmup + total) // 2, total - 1]


def rate_by_hand(case, step):
    an_epoch = case["examples"] // case["batch"]
    warmup, total = WARMUP * an_epoch, case["epochs"] * an_epoch
    peak = BASE_RATE * case["batch"] / 256
    if step < warmup:
        return peak * step / warmup
    return peak * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))


def expected_recipe(case):
    """On one device, in NumPy."""
    logits = logits_of(case, training=True)
    shifted = logits - logits.max(1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    wanted = (1 - SMOOTHING) * np.eye(3)[case["labels"]] + SMOOTHING / 3
    decay = DECAY * sum((w.astype(float) ** 2).sum() / 2 for w in case["weights"] if w.ndim > 1)
    return {
        LOSS: float(-(wanted * logs).sum(1).mean() + decay),
        RATES: [rate_by_hand(case, step) for step in steps_of(case)],
        MOMENTUM: 0.9,
        KIND_OF: "SGD",
        ITS_OWN: "none",
        CLASSES: logits_of(case, training=False).argmax(1).tolist(),
        CHANGED: False,
    }


def replicas_here():
    return tf.distribute.get_strategy().num_replicas_in_sync


def cross_entropy(wanted, logits):
    return tf.nn.softmax_cross_entropy_with_logits(wanted, logits)


def a_recipe(
    losses=cross_entropy,
    scale=lambda total, batch: total / batch,
    smoothed=lambda hot, classes: (1 - SMOOTHING) * hot + SMOOTHING / classes,
    decayed=lambda variables: [v for v in variables if len(v.shape) > 1],
    decay=lambda kernels: DECAY * tf.add_n([tf.nn.l2_loss(k) for k in kernels]) / replicas_here(),
    peak=lambda batch: BASE_RATE * batch / 256,
    schedule=lambda peak, an_epoch, epochs: schedules.WarmupCosine(peak, 5 * an_epoch, epochs * an_epoch),
    optimizer=lambda rate: keras.optimizers.SGD(rate, momentum=0.9),
    trains=True,
    looks=False,
):
    """A recipe that may differ from the right one in one place."""

    def recipe(model, examples, global_batch, epochs):
        def loss(images, labels):
            logits = model(images, training=trains)
            wanted = smoothed(tf.one_hot(labels, logits.shape[-1]), logits.shape[-1])
            total = scale(tf.reduce_sum(losses(wanted, logits)), global_batch)
            return total + decay(decayed(model.trainable_variables))

        def classify(images):
            return tf.argmax(model(images, training=looks), axis=1)

        rate = schedule(peak(global_batch), -(-examples // global_batch), epochs)
        return optimizer(rate), loss, classify

    return recipe


def kernels_by_name(variables):
    return [v for v in variables if v.name == "kernel"]


def cosine_from_0(peak, an_epoch, epochs):
    """Along the cosine over all updates, of which the warm-up takes the place of the beginning."""
    warmup, total = WARMUP * an_epoch, epochs * an_epoch

    class CosineFrom0(keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step):
            done = tf.cast(step, tf.float32)
            along = 0.5 * peak * (1 + tf.cos(math.pi * done / total))
            return tf.where(done < warmup, peak * done / warmup, along)

    return CosineFrom0()


def cosine_too_long(peak, an_epoch, epochs):
    return keras.optimizers.schedules.CosineDecay(
        0.0, epochs * an_epoch, warmup_target=peak, warmup_steps=WARMUP * an_epoch
    )


def with_keras_alone(model, examples, global_batch, epochs):
    """The loss from Keras' own, the warm-up from CosineDecay."""
    an_epoch = examples // global_batch
    rate = keras.optimizers.schedules.CosineDecay(
        0.0, (epochs - 5) * an_epoch, warmup_target=0.1 * global_batch / 256, warmup_steps=5 * an_epoch
    )
    loss_of = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1, reduction=None)

    def loss(images, labels):
        losses = loss_of(tf.one_hot(labels, 3), model(images, training=True))
        squares = sum(tf.reduce_sum(v**2) for v in kernels_by_name(model.trainable_variables))
        share = tf.nn.compute_average_loss(losses, global_batch_size=global_batch)
        return share + tf.nn.scale_regularization_loss(0.5e-4 * squares)

    return keras.optimizers.SGD(rate, 0.9), loss, lambda images: tf.argmax(model(images), 1)


RECIPE = Exercise(
    id="12.recipe",
    title="The recipe",
    points=4,
    length="about 14 lines",
    signature="recipe(model, examples, global_batch, epochs)",
    slow=True,
    time_limit=60,
    hints=[
        "Count in updates: an epoch has `examples / global_batch` of them. `cu.schedules.linear_scaling` and "
        "`cu.schedules.WarmupCosine` give the rate; what goes into them counts the *global* batch.",
        "The loss of this replica is a sum of two parts. The examples' losses: divided by the global batch "
        "(lesson 04). The decay: half the sum of squares of the *kernels*, which every replica computes, and "
        "which must count once.",
        "`tf.nn.softmax_cross_entropy_with_logits(0.9 * tf.one_hot(labels, n) + 0.1 / n, logits)`; kernels "
        "have "
        "more than one axis; and `model(images, training=…)` differs between the two functions.",
    ],
    cases=recipe_cases,
    observe=observe_recipe,
    expected=expected_recipe,
    tolerance=2e-5,
    mistakes=[
        Mistake(
            "softmax twice",
            a_recipe(losses=lambda wanted, logits: cross_entropy(wanted, tf.nn.softmax(logits))),
            went_wrong="The loss applies a softmax, and what you give it has been through one already: no "
            "class can "
            "ever become more than e times as likely as another, so the loss stays far from 0 and gradients "
            "are faint.",
            try_this="Hand the model's logits to the loss as they are.",
        ),
        Mistake(
            "logits taken for probabilities",
            a_recipe(losses=lambda wanted, logits: keras.losses.categorical_crossentropy(wanted, logits)),
            went_wrong="The model gives logits, any real numbers; the loss took them for probabilities.",
            try_this="`from_logits=True`, or `tf.nn.softmax_cross_entropy_with_logits`.",
        ),
        Mistake(
            "per-replica batch where the global one is due",
            a_recipe(scale=lambda total, batch: total / (batch / replicas_here())),
            went_wrong=lambda case, seen, expected: (
                f"On {case['replicas']} replicas the loss is {seen[LOSS]:.4g}, on one device "
                f"{expected[LOSS]:.4g}: "
                "each replica divided by its own share of the batch, and the sum counts every mean in full."
            ),
            try_this="Divide by `global_batch`, which counts the examples of all replicas.",
        ),
        Mistake(
            "divided twice",
            a_recipe(scale=lambda total, batch: total / batch / replicas_here()),
            went_wrong="The examples' losses are divided by the global batch and by the number of replicas. "
            "The "
            "gradient is too small by that factor. (An accuracy does not show it. Equality does.)",
            try_this="The global batch already counts the examples of all replicas.",
        ),
        Mistake(
            "learning rate not scaled",
            a_recipe(peak=lambda batch: BASE_RATE),
            went_wrong=lambda case, seen, expected: (
                f"The rate goes up to {max(seen[RATES]):.4g}, which is right for a global batch of 256. "
                "Here it is "
                f"{case['batch']}, and the right rate {max(expected[RATES]):.4g}."
            ),
            try_this="`cu.schedules.linear_scaling(0.1, global_batch)`",
        ),
        Mistake(
            "rate scaled by the per-replica batch",
            a_recipe(peak=lambda batch: BASE_RATE * batch / replicas_here() / 256),
            went_wrong="The rate is scaled by what *one* replica sees. An update is made of all replicas' "
            "examples.",
            try_this="Scale by `global_batch`.",
        ),
        Mistake(
            "epochs taken for updates",
            a_recipe(schedule=lambda peak, an_epoch, epochs: schedules.WarmupCosine(peak, 5, epochs)),
            went_wrong=lambda case, seen, expected: (
                f"The schedule counts updates, and you gave it epochs: after {case['epochs']} updates the "
                "rate is 0, "
                f"and most of the {steps_of(case)[-1] + 1} are for nothing."
            ),
            try_this="Multiply both by the updates of an epoch.",
        ),
        Mistake(
            "no schedule",
            a_recipe(optimizer=lambda rate: keras.optimizers.SGD(0.003, momentum=0.9)),
            recognises=lambda cases, seen, expected: all(len(set(one[RATES])) == 1 for one in seen),
            variants=[a_recipe(optimizer=lambda rate: keras.optimizers.Adam(0.1))],
            went_wrong=lambda case, seen, expected: (
                f"The rate is {seen[RATES][0]:.4g} in every update. It should rise, and then fall to 0."
            ),
            try_this="Give the optimizer a schedule: `cu.schedules.WarmupCosine`.",
        ),
        Mistake(
            "another optimizer",
            a_recipe(optimizer=lambda rate: keras.optimizers.SGD(rate, momentum=0.9, nesterov=True)),
            recognises=lambda cases, seen, expected: all(one[KIND_OF] != "SGD" for one in seen),
            variants=[a_recipe(optimizer=lambda rate: keras.optimizers.Adam(rate))],
            went_wrong=lambda case, seen, expected: (
                f"The optimizer is {seen[KIND_OF]}; SGD with plain momentum was asked for."
            ),
            try_this="`keras.optimizers.SGD(schedule, momentum=0.9)`",
        ),
        Mistake(
            "warm-up of 5 updates",
            a_recipe(
                schedule=lambda peak, an_epoch, epochs: schedules.WarmupCosine(peak, 5, epochs * an_epoch)
            ),
            went_wrong="The warm-up takes 5 updates, where it should take 5 epochs.",
            try_this="Multiply the 5 by the updates of an epoch.",
        ),
        Mistake(
            "no warm-up",
            a_recipe(
                schedule=lambda peak, an_epoch, epochs: keras.optimizers.schedules.CosineDecay(
                    peak, epochs * an_epoch
                )
            ),
            went_wrong="The first update already has the full rate, when the model knows nothing yet.",
            try_this="Reach the peak in 5 epochs: `cu.schedules.WarmupCosine`.",
        ),
        Mistake(
            "cosine over the warm-up's updates too",
            a_recipe(schedule=cosine_too_long),
            went_wrong=lambda case, seen, expected: (
                f"Half-way from the peak to the end the rate is {seen[RATES][3]:.4g}, and should be half the "
                f"peak, {expected[RATES][3]:.4g}; in the last update it is {seen[RATES][4]:.4g}. The cosine "
                "counts all updates, those of the warm-up too, which are over when it begins."
            ),
            try_this="The cosine has the updates that are left: all, without those of the warm-up.",
            variants=[a_recipe(schedule=cosine_from_0)],
        ),
        Mistake(
            "no momentum",
            a_recipe(optimizer=lambda rate: keras.optimizers.SGD(rate)),
            went_wrong="Everything is right but the momentum: 0.9 was asked for.",
            try_this="`keras.optimizers.SGD(schedule, momentum=0.9)`",
        ),
        Mistake(
            "L2 on BatchNormalization",
            a_recipe(decayed=lambda variables: variables),
            went_wrong="The decay takes all trainable variables, so it also pulls each gamma, beta and bias "
            "towards 0. "
            "A gamma of 0 switches a channel off, and nobody wanted that.",
            try_this="Only kernels are decayed: the variables with more than one axis.",
            variants=[a_recipe(decayed=lambda variables: [v for v in variables if v.name != "bias"])],
        ),
        Mistake(
            "decay counted once a replica",
            a_recipe(decay=lambda kernels: DECAY * tf.add_n([tf.nn.l2_loss(k) for k in kernels])),
            went_wrong=lambda case, seen, expected: (
                f"Each of {case['replicas']} replicas adds the whole decay, and their losses are summed: it "
                "counts "
                f"{case['replicas']} times (lesson 04)."
            ),
            try_this="Divide it by the number of replicas.",
        ),
        Mistake(
            "no decay",
            a_recipe(decay=lambda kernels: 0.0),
            went_wrong="The loss of the examples is right; the decay of the kernels is missing.",
            try_this="Add `1e-4` times half the sum of squares of the kernels.",
        ),
        Mistake(
            "decay without the half",
            a_recipe(
                decay=lambda kernels: DECAY * sum(tf.reduce_sum(k**2) for k in kernels) / replicas_here()
            ),
            went_wrong="The decay is twice what was asked for: the recipe's 1e-4 goes with *half* the sum "
            "of squares, "
            "so that its gradient is 1e-4 times the weight. (Keras' `L2(…)` has no half either.)",
            try_this="`tf.nn.l2_loss` has the half in it.",
        ),
        Mistake(
            "decayed by the optimizer instead",
            a_recipe(
                decay=lambda kernels: 0.0,
                optimizer=lambda rate: keras.optimizers.SGD(rate, momentum=0.9, weight_decay=DECAY),
            ),
            went_wrong="The optimizer's own `weight_decay` takes all variables unless told otherwise, and "
            "bypasses "
            "the momentum: with 0.9, the same number decays a tenth as much.",
            try_this="Put the decay into the loss, for kernels only.",
        ),
        Mistake(
            "no label smoothing",
            a_recipe(smoothed=lambda hot, classes: hot),
            went_wrong="The loss wants probability 1 for the right class. With smoothing it wants 0.9, and "
            "0.1 spread "
            "over all classes.",
            try_this="Mix `tf.one_hot(labels, n)` with `1 / n`.",
        ),
        Mistake(
            "smoothed over the wrong classes only",
            a_recipe(
                smoothed=lambda hot, classes: (1 - SMOOTHING) * hot + SMOOTHING * (1 - hot) / (classes - 1)
            ),
            went_wrong="You spread the 0.1 over the *other* classes. The recipe spreads it over all, the "
            "right one "
            "too, which then gets a little more than 0.9.",
            try_this="`0.9 * one_hot + 0.1 / n`",
        ),
        Mistake(
            "BatchNormalization in training mode at evaluation",
            a_recipe(looks=True),
            went_wrong="`classify` runs the model as in training: it normalises by the pictures that happen "
            "to be "
            "beside each other, and what it finds in a picture depends on its neighbours. It also moves the "
            "averages by what it sees.",
            try_this="`model(images, training=False)` in `classify`.",
        ),
        Mistake(
            "BatchNormalization in evaluation mode in training",
            a_recipe(trains=False),
            went_wrong="The loss runs the model as in evaluation: it normalises by the averages, which then "
            "never "
            "move.",
            try_this="`model(images, training=True)` in `loss`.",
            variants=[a_recipe(trains=None)],
        ),
    ],
    also_right=[with_keras_alone, a_recipe(decayed=kernels_by_name)],
)

EXERCISES = [RESIDUAL_BLOCK, ANOTHER_NETWORK, RECIPE]
