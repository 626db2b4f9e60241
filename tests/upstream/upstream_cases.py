"""Small trainings, each with one feature of Keras, to be run under any strategy and compared.

A case is run the same way with several replicas and with one device. What it returns is plain data.
"""

import collections
import tempfile
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

BATCH = 16  # 160 examples: ten steps an epoch
Run = collections.namedtuple("Run", "weights history evaluated predicted")


def run(names, strategy):
    """{name: what `Run` holds, as a dict} for each case, all in this process under one strategy."""
    return {name: CASES[name](strategy)._asdict() for name in names}


CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def examples(n=160, seed=0):
    """Features (n, 6), classes (n,) of 3 that depend on them."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 6)).astype("float32")
    return x, (x @ rng.normal(size=(6, 3))).argmax(1)


def classifier(*layers, features=6):
    return keras.Sequential([keras.Input((features,)), *layers, keras.layers.Dense(3, dtype="float32")])


def compile(model, loss=None, **kwargs):
    loss = loss or keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    kwargs = {"metrics": ["accuracy"], "optimizer": keras.optimizers.SGD(0.1)} | kwargs
    model.compile(loss=loss, **kwargs)
    return model


def made(strategy, build):
    """The model that `build` makes, with the same weights everywhere."""
    keras.utils.set_random_seed(1)
    with strategy.scope():
        return build()


def train(strategy, build, x, y=None, epochs=2, evaluate=False, **kwargs):
    """Two epochs of ten batches: 20 steps, without shuffling unless asked for."""
    model = made(strategy, build)
    kwargs = {"batch_size": BATCH, "shuffle": False} | kwargs
    history = model.fit(x, y, epochs=epochs, verbose=0, **kwargs).history
    if not evaluate:
        return Run(model.get_weights(), history, None, None)
    scores = model.evaluate(x, y, batch_size=BATCH, verbose=0, return_dict=True)
    return Run(model.get_weights(), history, scores, model.predict(x, batch_size=BATCH, verbose=0))


@case
def sequential(strategy):
    return train(
        strategy, lambda: compile(classifier(keras.layers.Dense(8, "tanh"))), *examples(), evaluate=True
    )


@case
def functional_with_dict_inputs(strategy):
    def build():
        left, right = keras.Input((4,), name="left"), keras.Input((2,), name="right")
        joined = keras.layers.Concatenate()([keras.layers.Dense(5, "tanh")(left), right])
        return compile(keras.Model({"left": left, "right": right}, keras.layers.Dense(3)(joined)))

    x, y = examples()
    return train(strategy, build, {"left": x[:, :4], "right": x[:, 4:]}, y)


@case
def two_outputs(strategy):
    def build():
        inputs = keras.Input((6,))
        hidden = keras.layers.Dense(8, "tanh")(inputs)
        outputs = {
            "kind": keras.layers.Dense(3, name="kind")(hidden),
            "size": keras.layers.Dense(1, name="size")(hidden),
        }
        losses = {"kind": keras.losses.SparseCategoricalCrossentropy(from_logits=True), "size": "mse"}
        return compile(
            keras.Model(inputs, outputs),
            losses,
            loss_weights={"kind": 1.0, "size": 0.5},
            metrics={"kind": "accuracy", "size": "mae"},
        )

    x, y = examples(152)
    return train(strategy, build, x, {"kind": y, "size": x.sum(1, keepdims=True)}, evaluate=True)


@case
def sample_weights(strategy):
    x, y = examples()
    weights = np.random.default_rng(3).uniform(0, 2, len(x)).astype("float32")
    build = lambda: compile(classifier(), weighted_metrics=["accuracy"])  # noqa: E731
    return train(strategy, build, x, y, sample_weight=weights)


@case
def class_weights(strategy):
    return train(strategy, lambda: compile(classifier()), *examples(), class_weight={0: 1.0, 1: 3.0, 2: 0.5})


@case
def synchronised_batch_normalisation(strategy):
    def build():
        return compile(classifier(keras.layers.Dense(8), keras.layers.BatchNormalization(synchronized=True)))

    return train(strategy, build, *examples(145), evaluate=True)


@case
def dropout(strategy):
    return _with_dropout(strategy, lambda: keras.layers.Dropout(0.5, seed=7))


def dropout_as_on(replicas, strategy):
    """On one device, the masks that replicas draw for their parts of each batch, the parts in their order."""
    return _with_dropout(strategy, lambda: DropoutInParts(replicas))


class DropoutInParts(keras.layers.Layer):
    """Dropout(0.5, seed=7), the batch cut into parts, each with its replica's index folded into the seed."""

    def __init__(self, replicas):
        super().__init__()
        self.replicas = replicas
        self.seed_generator = keras.random.SeedGenerator(7)

    def call(self, inputs, training=False):
        if not training:
            return inputs
        seed = tf.cast(self.seed_generator.next(), tf.int64)
        parts = tf.split(inputs, len(self.replicas))
        dropped = [self.dropped(part, seed, n) for part, n in zip(parts, self.replicas, strict=True)]
        return tf.concat(dropped, axis=0)

    def dropped(self, part, seed, replica):
        if replica:
            folded = tf.random.experimental.stateless_fold_in(seed, replica)
            seed = tf.math.floormod(tf.cast(folded, tf.int64), tf.int32.max - 1)
        return tf.nn.experimental.stateless_dropout(part, 0.5, seed=tf.cast(seed, tf.int32))


def _with_dropout(strategy, layer):
    """Batches of 12: every number of replicas gets equal parts."""
    build = lambda: compile(classifier(keras.layers.Dense(8, "tanh"), layer()))  # noqa: E731
    return train(strategy, build, *examples(120), batch_size=12)


@case
def mixed_bfloat16(strategy):
    def build():
        return compile(classifier(keras.layers.Dense(8, "tanh", dtype="mixed_bfloat16")))

    return train(strategy, build, *examples())


@case
def mixed_float16(strategy):
    return _in_float16(strategy, *examples())


@case
def overflow_on_one_replica(strategy):
    """One example of the second batch is too large for float16: nobody may apply that step's gradients."""
    x, y = examples()
    x[2 * BATCH - 1] = 1e30
    return _in_float16(strategy, x, y)


def _in_float16(strategy, x, y):
    keras.config.set_dtype_policy("mixed_float16")
    try:
        return train(strategy, lambda: compile(classifier(keras.layers.Dense(8, "relu"))), x, y)
    finally:
        keras.config.set_dtype_policy("float32")


@case
def several_steps_per_execution(strategy):
    return train(strategy, lambda: compile(classifier(), steps_per_execution=3), *examples(152))


@case
def uneven_last_batch(strategy):
    """147 = 9 x 16 + 3: two replicas get 2 and 1 of the last batch, one of four gets none."""
    build = lambda: compile(classifier(keras.layers.Dense(8, "tanh", kernel_regularizer="l2")))  # noqa: E731
    return train(strategy, build, *examples(147), evaluate=True)


class FlattenByHand(keras.layers.Layer):
    """As many write it; TensorFlow cannot infer the -1 for an empty batch."""

    def call(self, inputs):
        return tf.reshape(inputs, [tf.shape(inputs)[0], -1])

    def compute_output_shape(self, shape):
        return shape[0], int(np.prod(shape[1:]))


@case
def convolution_without_examples(strategy):
    def build():
        layers = [
            keras.layers.Reshape((6, 1, 1)),
            keras.layers.Conv2D(4, (3, 1), activation="relu"),
            keras.layers.MaxPooling2D((2, 1)),
            FlattenByHand(),
        ]
        return compile(classifier(*layers))

    return train(strategy, build, *examples(145), evaluate=True)


@case
def local_batch_normalisation_without_examples(strategy):
    build = lambda: compile(classifier(keras.layers.Dense(8), keras.layers.BatchNormalization()))  # noqa: E731
    return train(strategy, build, *examples(145))


@case
def validation_data(strategy):
    return train(strategy, lambda: compile(classifier()), *examples(), validation_data=examples(39, seed=1))


@case
def validation_split(strategy):
    return train(strategy, lambda: compile(classifier()), *examples(200), validation_split=0.2)


@case
def shuffled_arrays(strategy):
    return train(strategy, lambda: compile(classifier()), *examples(), shuffle=True)


@case
def shuffled_without_a_seed(strategy):
    """No seed anywhere, so each worker's order would be its own: the mean of squares tells lost examples."""
    model = made(strategy, lambda: compile(identity(), "mse", metrics=[product]))
    context.context()._seed = None  # as in a process where nobody called set_random_seed
    squares = np.sqrt(np.arange(1.0, 161.0, dtype="float32")).reshape(-1, 1)
    history = model.fit(squares, squares, batch_size=BATCH, epochs=2, verbose=0).history
    return Run(model.get_weights(), history, None, None)


def product(label, prediction):
    return label * prediction


def identity():
    """A model that gives back what it gets."""
    layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones", kernel_constraint=ones_stay)
    return keras.Sequential([keras.Input((1,)), layer])


def ones_stay(weights):
    return keras.ops.ones_like(weights)


@case
def generator(strategy):
    x, y = examples(152)

    def batches():
        for start in range(0, len(x), BATCH):
            yield x[start : start + BATCH], y[start : start + BATCH]

    return train(
        strategy, lambda: compile(classifier()), batches(), epochs=1, batch_size=None, evaluate=False
    )


@case
def endless_generator(strategy):
    x, y = examples()

    def batches():
        while True:
            for start in range(0, len(x), BATCH):
                yield x[start : start + BATCH], y[start : start + BATCH]

    build = lambda: compile(classifier())  # noqa: E731
    return train(strategy, build, batches(), batch_size=None, steps_per_epoch=10)


class Batches(keras.utils.PyDataset):
    def __init__(self, n, **kwargs):
        super().__init__(**kwargs)
        self.x, self.y = examples(n)

        self.reads = 0

    def __len__(self):
        return -(-len(self.x) // BATCH)

    def __getitem__(self, i):
        self.reads += 1
        return self.x[i * BATCH : (i + 1) * BATCH], self.y[i * BATCH : (i + 1) * BATCH]


@case
def py_dataset(strategy):
    batches = Batches(152)
    done = train(strategy, lambda: compile(classifier()), batches, batch_size=None)
    return done._replace(evaluated={"reads": batches.reads})


@case
def py_dataset_with_threads(strategy):
    return train(
        strategy, lambda: compile(classifier()), Batches(152, workers=2), batch_size=None, evaluate=False
    )


@case
def masked_sequences(strategy):
    def build():
        layers = [
            keras.Input((6,)),
            keras.layers.Embedding(5, 4, mask_zero=True),
            keras.layers.LSTM(4, return_sequences=True),
            keras.layers.Dense(3),
        ]
        return compile(keras.Sequential(layers))

    tokens = np.random.default_rng(0).integers(0, 5, (152, 6))
    return train(strategy, build, tokens, tokens % 3)


@case
def mean_by_sample_weight(strategy):
    x, y = examples(152)
    weights = np.random.default_rng(3).uniform(0, 2, len(x)).astype("float32")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="mean_with_sample_weight")
    return train(strategy, lambda: compile(classifier(), loss), x, y, sample_weight=weights)


@case
def sum_over_batch(strategy):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")
    return train(
        strategy, lambda: compile(classifier(), loss, optimizer=keras.optimizers.SGD(0.005)), *examples(152)
    )


class ByHand(keras.Model):
    """The training step that the Keras guide shows, with a loss metric of its own."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.mean_loss = keras.metrics.Mean(name="mean_loss")

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        self.mean_loss.update_state(loss)
        return {"mean_loss": self.mean_loss.result(), "last_loss": loss}

    @property
    def metrics(self):
        return [self.mean_loss]


@case
def custom_train_step(strategy):
    def build():
        inputs = keras.Input((6,))
        outputs = keras.layers.Dense(3, kernel_regularizer="l2")(inputs)
        return compile(ByHand(inputs, outputs), metrics=None)

    return train(strategy, build, *examples(152))


@case
def adam_with_moving_average(strategy):
    optimizer = lambda: keras.optimizers.Adam(0.01, use_ema=True, weight_decay=0.01)  # noqa: E731
    return train(strategy, lambda: compile(classifier(), optimizer=optimizer()), *examples())


@case
def gradient_accumulation(strategy):
    optimizer = lambda: keras.optimizers.SGD(0.1, 0.9, gradient_accumulation_steps=3)  # noqa: E731
    return train(strategy, lambda: compile(classifier(), optimizer=optimizer()), *examples(152))


@case
def clipped_by_global_norm(strategy):
    optimizer = lambda: keras.optimizers.SGD(0.1, global_clipnorm=0.3)  # noqa: E731
    return train(strategy, lambda: compile(classifier(), optimizer=optimizer()), *examples(152))


@case
def accumulated_and_clipped(strategy):
    optimizer = lambda: keras.optimizers.SGD(0.1, clipnorm=0.1, gradient_accumulation_steps=2)  # noqa: E731
    build = lambda: compile(classifier(), optimizer=optimizer(), steps_per_execution=3)  # noqa: E731
    return train(strategy, build, *examples(152))


@case
def eager(strategy):
    return train(strategy, lambda: compile(classifier(), run_eagerly=True), *examples(152), epochs=1)


@case
def callbacks(strategy):
    """Training stops early: when an epoch no longer improves the validation loss by 0.02."""
    with tempfile.TemporaryDirectory() as folder:
        used = [
            keras.callbacks.EarlyStopping(patience=0, min_delta=0.02, restore_best_weights=True),
            keras.callbacks.ModelCheckpoint(f"{folder}/best.keras", save_best_only=True),
            keras.callbacks.LearningRateScheduler(lambda epoch: 0.8**epoch),
            keras.callbacks.TensorBoard(f"{folder}/logs"),
        ]
        build = lambda: compile(classifier(keras.layers.Dense(16, "tanh")))  # noqa: E731
        done = train(
            strategy, build, *examples(), epochs=12, callbacks=used, validation_data=examples(30, seed=1)
        )
        saved = keras.models.load_model(f"{folder}/best.keras").get_weights()
        events = len(list(Path(folder, "logs").rglob("events*")))
    return done._replace(evaluated={"event files": events}, predicted=saved)


@case
def interrupted_and_resumed(strategy):
    """The training of `sequential`, broken off after its first epoch and taken up by a new model."""
    build = lambda: compile(classifier(keras.layers.Dense(8, "tanh")))  # noqa: E731
    with tempfile.TemporaryDirectory() as folder:
        try:
            train(strategy, build, *examples(), callbacks=[_backup(folder), BreakOff(1)])
        except InterruptedError:
            return train(strategy, build, *examples(), callbacks=[_backup(folder)])


class BreakOff(keras.callbacks.Callback):
    def __init__(self, epoch):
        super().__init__()
        self.epoch = epoch

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == self.epoch:
            raise InterruptedError


def _backup(folder):
    return keras.callbacks.BackupAndRestore(folder)
