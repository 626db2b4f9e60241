"""The pieces of a custom training loop, from one replica's loss to whole epochs.

What runs on a replica is a plain function of (images, labels): `train_step` and `evaluation_step` make them.
What runs them everywhere is one `tf.function` for a whole epoch: `train_function` and `evaluation_function`.
`fit_epochs` puts all of it together.

Two choices make the loop fast without changing what it computes. One iterator over a repeated dataset serves
all epochs, since ending an iterator of a distributed dataset can block for seconds
(`upstream.epoch_end_stall`). And the steps of an epoch run in `tf.range` inside one graph, so that Python is
asked once an epoch, not once a step.

Source: https://www.tensorflow.org/tutorials/distribute/custom_training for the pieces; the order is ours.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import keras
import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import trackable_object_graph_pb2

from course_utils.errors import DataError, UpstreamError
from course_utils.upstream import epoch_end_stall

OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"  # where a checkpoint says which objects its values belong to
Arrays = tuple[np.ndarray, np.ndarray]  # images (n, 28, 28, 1) uint8, labels (n,)


def per_example_loss(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Cross-entropy of each example in nats, shape (batch,): float32, or float64 where the logits are."""
    precise = logits if logits.dtype == tf.float64 else tf.cast(logits, tf.float32)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, precise)


def average_loss(losses: tf.Tensor, global_batch_size: int) -> tf.Tensor:
    """What this replica contributes to the mean loss: the sum of its `losses` by the *global* batch size.

    The sum of it over the replicas is the mean over the whole batch, whatever the number of replicas.
    """
    return tf.reduce_sum(losses) / tf.cast(global_batch_size, losses.dtype)


def average_loss_over_present(losses: tf.Tensor) -> tf.Tensor:
    """The same where batches may be short: divided by the examples that all replicas together hold this step.

    Call it on a replica: the count is an all-reduce, so every replica must come, one without examples too.
    """
    present = tf.cast(tf.size(losses), losses.dtype)
    return tf.reduce_sum(losses) / tf.distribute.get_replica_context().all_reduce("SUM", present)


def train_step(
    model: keras.Model,
    optimizer: keras.Optimizer,
    global_batch_size: int,
    accuracy: keras.metrics.Metric | None = None,
) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """The function (images, labels) → share of the loss that trains one step on one replica.

    Make model, optimizer and metric in the strategy's scope. The optimizer sums the gradients over the
    replicas when it applies them.
    """

    def step(images, labels):
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            share = average_loss(per_example_loss(labels, logits), global_batch_size)
        gradients = tape.gradient(share, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)  # distributed: sums over the replicas
        if accuracy is not None:
            accuracy.update_state(labels, logits)
        return share

    return step


def accumulating_step(
    model: keras.Model,
    optimizer: keras.Optimizer,
    global_batch_size: int,
    micro_batch_size: int,
    accuracy: keras.metrics.Metric | None = None,
) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """What `train_step` makes, for a batch too large to be computed at once: same update, less memory.

    A replica takes its share in parts of at most `micro_batch_size` examples, adds their gradients up, and
    applies the sum: one update, and one meeting of the replicas, however many parts. `global_batch_size` is
    that of the whole update. Equal to `train_step` up to rounding, unless a layer looks at a whole batch, as
    BatchNormalization does: it sees the parts.
    """

    def step(images, labels):
        held = [tf.zeros_like(variable.value) for variable in model.trainable_variables]
        loss = tf.constant(0.0)
        for first in tf.range(0, tf.shape(labels)[0], micro_batch_size):  # no turn without examples
            part = images[first : first + micro_batch_size], labels[first : first + micro_batch_size]
            share, gradients = share_and_gradients(*part)
            held = [sum_so_far + gradient for sum_so_far, gradient in zip(held, gradients, strict=True)]
            loss += tf.cast(share, tf.float32)
        optimizer.apply(held, model.trainable_variables)  # distributed: once, after all parts
        return loss

    def share_and_gradients(images, labels):
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            share = average_loss(per_example_loss(labels, logits), global_batch_size)
        if accuracy is not None:
            accuracy.update_state(labels, logits)
        return share, tape.gradient(share, model.trainable_variables)

    return step


def overflow_together(gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """`gradients`; or infinities in their place, on every replica, where one replica has an overflow.

    Keras' LossScaleOptimizer skips an update whose gradients overflow, but looks at the first replica's alone
    (Keras 3.15, before they are summed). Call this on every replica before its `apply`: one number travels.
    """
    finite = [tf.reduce_all(tf.math.is_finite(gradient)) for gradient in gradients]
    broken = 1.0 - tf.cast(tf.reduce_all(finite), tf.float32)
    anywhere = tf.distribute.get_replica_context().all_reduce("SUM", broken) > 0
    return [tf.where(anywhere, tf.cast(np.inf, g.dtype), g) for g in gradients]


def later(tensors: Sequence[tf.Tensor], seconds: float | tf.Tensor) -> list[tf.Tensor]:
    """The same tensors, `seconds` after they were there: a slow worker, made on purpose inside a graph.

    It waits without using the processor, by the `SleepDataset` of tf.data, on the device that runs it.
    """
    with tf.control_dependencies(tensors):
        once = tf.data.Dataset.range(2)
        slept = tf.raw_ops.SleepDataset(
            input_dataset=tf.data.experimental.to_variant(once),
            sleep_microseconds=tf.cast(1e6 * tf.cast(seconds, tf.float64), tf.int64),
            output_types=[tf.int64],
            output_shapes=[tf.TensorShape([])],
        )
        slept = tf.data.experimental.from_variant(slept, once.element_spec).take(1)
        waited = slept.reduce(np.int64(0), lambda total, number: total + number)
    with tf.control_dependencies([waited]):
        return [tf.identity(tensor) for tensor in tensors]


def evaluation_step(
    model: keras.Model, loss: keras.metrics.Metric, accuracy: keras.metrics.Metric
) -> Callable[[tf.Tensor, tf.Tensor], None]:
    """The function (images, labels) → None that adds one replica's examples to the two metrics."""

    def step(images, labels):
        logits = model(images, training=False)
        loss.update_state(per_example_loss(labels, logits))
        accuracy.update_state(labels, logits)

    return step


def train_function(strategy: tf.distribute.Strategy, step: Callable) -> Callable:
    """A tf.function (iterator, steps) → mean loss of the steps, all of them in one graph.

    Give `steps` as a tensor: every other Python number would be traced again.
    """

    @tf.function
    def train(iterator, steps):
        total = tf.constant(0.0)
        for _ in tf.range(steps):
            shares = strategy.run(step, args=next(iterator))
            total += tf.cast(strategy.reduce("SUM", shares, axis=None), tf.float32)
        return total / tf.cast(steps, tf.float32)

    return train


def evaluation_function(strategy: tf.distribute.Strategy, step: Callable) -> Callable:
    """A tf.function (iterator, steps) → None that runs an evaluation step so many times, in one graph."""

    @tf.function
    def evaluate(iterator, steps):
        for _ in tf.range(steps):
            strategy.run(step, args=next(iterator))

    return evaluate


def training_data(examples: Arrays, global_batch_size: int, seed: int = 0) -> tf.data.Dataset:
    """An endless dataset of shuffled global batches, all of full size.

    Each pass holds every example once; a batch may hold the end of one pass and the start of the next, so
    that nothing is dropped and no short batch is left. An epoch is `steps_for(examples, global_batch_size)`.
    """
    data = tf.data.Dataset.from_tensor_slices(examples)
    data = data.shuffle(len(examples[1]), seed=seed).repeat().batch(global_batch_size, drop_remainder=True)
    return data.prefetch(2).with_options(dataset_options())


def evaluation_data(examples: Arrays, global_batch_size: int) -> tf.data.Dataset:
    """An endless dataset of global batches in order; the last of a pass may be short."""
    data = tf.data.Dataset.from_tensor_slices(examples).batch(global_batch_size).repeat()
    return data.prefetch(2).with_options(dataset_options())


def batches(
    strategy: tf.distribute.Strategy, examples: Arrays, global_batch_size: int
) -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
    """An endless iterator over global batches in order, cut over the replicas; it may be dropped any time."""
    return _iterator(strategy, evaluation_data(examples, global_batch_size))


def steps_for(examples: Arrays, global_batch_size: int) -> int:
    """Steps that see every example at least once."""
    return -(-len(examples[1]) // global_batch_size)


@dataclass(frozen=True)
class Epoch:
    """One line of a training's history: mean losses in nats, accuracies as fractions, wall-clock seconds."""

    number: int
    train_loss: float
    train_accuracy: float
    test_loss: float
    test_accuracy: float
    seconds: float
    images: int

    def __str__(self):
        return (
            f"epoch {self.number:2d} · train loss {self.train_loss:.4f}, accuracy {self.train_accuracy:.2%}"
            f" · test loss {self.test_loss:.4f}, accuracy {self.test_accuracy:.2%} · {self.seconds:.1f} s"
        )


def fit_epochs(
    strategy: tf.distribute.Strategy,
    model: keras.Model,
    optimizer: keras.Optimizer,
    train: Arrays,
    test: Arrays | None = None,
    *,
    epochs: int,
    global_batch_size: int = 128,
    seed: int = 0,
    on_epoch: Callable[[Epoch], None] | None = None,
) -> list[Epoch]:
    """The history of `epochs` epochs of training `model` under `strategy`, one `Epoch` each.

    `model` and `optimizer` come from the strategy's scope. `train` and `test` are (images, labels) arrays;
    without `test` its columns are NaN. `seed` fixes the order of the examples. `on_epoch` is called after
    each epoch, to print or to save. An Epoch's `seconds` are from end to end, evaluation included; its
    `images` are those it trained on.
    """
    run = _Run(strategy, model, optimizer, train, test, global_batch_size, seed)
    history = []
    for number in range(1, epochs + 1):
        history.append(run.epoch(number))
        if on_epoch:
            on_epoch(history[-1])
    return history


class _Run:
    """What stays for all epochs: metrics, one iterator a dataset, one traced function each."""

    def __init__(self, strategy, model, optimizer, train, test, batch, seed):
        with strategy.scope():
            optimizer.build(model.trainable_variables)  # Keras 3: before the first distributed step
            self.train_accuracy = keras.metrics.SparseCategoricalAccuracy()
            self.test_loss = keras.metrics.Mean()
            self.test_accuracy = keras.metrics.SparseCategoricalAccuracy()
        self.batch = batch
        self.steps = steps_for(train, batch)
        self.train_batches = _iterator(strategy, training_data(train, batch, seed))
        self.train = train_function(strategy, train_step(model, optimizer, batch, self.train_accuracy))
        self.test_steps = steps_for(test, batch) if test else 0
        if test:
            self.test_batches = _iterator(strategy, evaluation_data(test, batch))
            step = evaluation_step(model, self.test_loss, self.test_accuracy)
            self.evaluate = evaluation_function(strategy, step)

    def epoch(self, number) -> Epoch:
        start = time.perf_counter()
        for metric in (self.train_accuracy, self.test_loss, self.test_accuracy):
            metric.reset_state()
        loss = float(self.train(self.train_batches, tf.constant(self.steps)))
        if self.test_steps:
            self.evaluate(self.test_batches, tf.constant(self.test_steps))
        tested = (
            float(m.result()) if self.test_steps else np.nan for m in (self.test_loss, self.test_accuracy)
        )
        accuracy = float(self.train_accuracy.result())
        seconds = time.perf_counter() - start
        return Epoch(number, loss, accuracy, *tested, seconds, self.steps * self.batch)


def meet(strategy: tf.distribute.Strategy) -> None:
    """None, when every worker of the strategy has come here too: a barrier, of one number each."""

    def on_a_replica(one):
        return tf.distribute.get_replica_context().all_reduce("SUM", tf.identity(one))  # not a captured one

    @tf.function
    def wait(one):
        return strategy.run(on_a_replica, args=(one,))

    strategy.experimental_local_results(wait(tf.ones([1])))[0].numpy()


@contextlib.contextmanager
def iterators_end_at_once() -> Iterator[None]:
    """A context in which iterators of distributed datasets are made that can be dropped without waiting.

    One iterator for all epochs ends only once, but its wait has grown with the training: over two minutes
    after five. TensorFlow's own behaviour is back afterwards; on a version that the mend was not tested with,
    nothing is changed.
    """
    before = epoch_end_stall.enabled()
    with contextlib.suppress(UpstreamError):
        epoch_end_stall.enable()
    try:
        yield
    finally:
        if not before:
            epoch_end_stall.disable()


def evaluate(model: keras.Model, examples: Arrays, batch_size: int = 500) -> tuple[float, float]:
    """Mean loss in nats and accuracy of a plain model, without any strategy."""
    losses, right = 0.0, 0
    infer = tf.function(lambda images: model(images, training=False))
    for images, labels in tf.data.Dataset.from_tensor_slices(examples).batch(batch_size):
        logits = infer(images)
        losses += float(tf.reduce_sum(per_example_loss(labels, logits)))
        right += int(tf.reduce_sum(tf.cast(tf.argmax(logits, 1) == tf.cast(labels, tf.int64), tf.int32)))
    return losses / len(examples[1]), right / len(examples[1])


def restore(model: keras.Model, folder: str | os.PathLike) -> str:
    """The path of the newest checkpoint in `folder`, after restoring `model` from it and proving that it was.

    The checkpoint must hold the model under the name `model`, as `tf.train.Checkpoint(model=…, …)` saves it.
    The model may be a plain one where the checkpoint was written under a strategy.

    Raises DataError when there is no checkpoint, when the model has no variables yet or some that TensorFlow
    would not save (`check_savable`), and when it does not fit (`read_into`).
    """
    path = tf.train.latest_checkpoint(folder)
    if path is None:
        raise DataError(
            f"There is no checkpoint in {os.fspath(folder)!r}.",
            cause="another folder, or nothing was saved; restore(None) would restore nothing without a word.",
            cure="Give the folder that was saved to.",
        )
    check_savable(model)
    read_into(tf.train.Checkpoint(model=model), path, model)
    return path


def check_savable(model: keras.Model) -> None:
    """None, where a checkpoint of the model holds all its weights.

    Raises DataError where it has none yet, and where TensorFlow would leave some out in silence: of layers in
    a plain list or dictionary of a subclass of keras.Model it knows nothing.
    """
    if not model.variables:
        raise DataError(
            "The model has no variables yet, so nothing could be saved or restored.",
            cure="Build it first, for example model.build(shape).",
        )
    found = tf.train.TrackableView(model).descendants()
    found = {id(thing) for thing in found} | {id(getattr(thing, "value", None)) for thing in found}
    lost = [weight.path for weight in model.weights if not {id(weight), id(weight.value)} & found]
    if lost:
        raise DataError(
            f"A checkpoint would leave out {len(lost)} of the model's {len(model.weights)} weights, such as "
            f"{lost[0]}.",
            cause="TensorFlow does not see layers that a model of your own keeps in a list or a dictionary.",
            cure="Give each layer a name of its own (self.first = …), or use keras.Sequential.",
        )


def read_into(checkpoint: tf.train.Checkpoint, path: str, model: keras.Model) -> None:
    """None; the objects of `checkpoint` hold what is saved in `path`, and `model`, among them, all of it.

    What else is in the file, such as the optimizer's part, may be left behind. Raises DataError when a
    variable of yours is not in it, has another shape there, or when it holds more of the model than this one
    has: TensorFlow passes over the first and the last in silence.
    """
    try:
        # expect_partial: what is left behind is so on purpose, TensorFlow need not warn of it.
        checkpoint.restore(path).expect_partial().assert_existing_objects_matched()
        cause = _of_a_larger_model(path, model)
    except (AssertionError, ValueError) as error:  # no value for a variable, a value of another shape
        cause = str(error).split(". ")[0][:200] + "."
        raise _does_not_fit(path, cause) from error
    if cause:
        raise _does_not_fit(path, cause)


def _does_not_fit(path, cause):
    return DataError(
        f"The checkpoint {os.path.basename(path)} does not fit this model, or what is restored with it.",
        cause=cause,
        cure="Restore into the same architecture and optimizer, saved under the same names (the model's is "
        "`model`), or choose another folder for a new job.",
    )


def _of_a_larger_model(path, model) -> str:
    """Which variables of the saved model have no place in this one, in words; empty where all have."""
    graph = trackable_object_graph_pb2.TrackableObjectGraph()
    graph.ParseFromString(tf.train.load_checkpoint(path).get_tensor(OBJECT_GRAPH))
    saved = {child.local_name: child.node_id for child in graph.nodes[0].children}
    names = sorted(_without_a_place(graph.nodes, saved["model"], model)) if "model" in saved else []
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"a larger model was saved, which has also {', '.join(names[:3])}{more}." if names else ""


def _without_a_place(nodes, node_id, thing) -> set[str]:
    """Names of the variables that hang on a saved object, and on nothing that `thing` has in its place."""
    pairs, reached, lost = [(node_id, thing)], {node_id}, set()
    while pairs:
        node_id, thing = pairs.pop()
        places = tf.train.TrackableView.children(thing)
        for child in nodes[node_id].children:
            if child.local_name == "optimizer":  # of a compiled model
                continue
            if child.local_name not in places:
                lost.add(child.node_id)
            elif child.node_id not in reached:
                reached.add(child.node_id)
                pairs.append((child.node_id, places[child.local_name]))
    return {name for node_id in lost for name in _variables_on(nodes, node_id, reached)}


def _variables_on(nodes, node_id, reached) -> set[str]:
    """Names of the variables on a saved object, but those that have been reached another way."""
    open_nodes, seen, names = [node_id], set(reached), set()
    while open_nodes:
        node_id = open_nodes.pop()
        if node_id not in seen:
            seen.add(node_id)
            names |= {attribute.full_name for attribute in nodes[node_id].attributes}
            open_nodes += [child.node_id for child in nodes[node_id].children]
    return names


def largest_difference(these: keras.Model | Sequence, those: keras.Model | Sequence) -> float:
    """The largest absolute difference between two models' weights (or lists of arrays), as a float.

    Raises ValueError when they do not have the same shapes.
    """
    pairs = zip(_weights(these), _weights(those), strict=True)
    return max(float(np.max(np.abs(np.subtract(*_same_shape(a, b))))) for a, b in pairs)


def _weights(thing):
    return thing.get_weights() if isinstance(thing, keras.Model) else [np.asarray(array) for array in thing]


def _same_shape(a, b):
    if a.shape != b.shape:
        raise ValueError(f"weights of shapes {a.shape} and {b.shape} do not compare")
    return a, b


def _iterator(strategy, data):
    with iterators_end_at_once():
        return iter(strategy.experimental_distribute_dataset(data))


def dataset_options() -> tf.data.Options:
    """The options of this module's datasets: nothing tuned, and each worker takes its part of every batch."""
    options = tf.data.Options()
    # There is nothing to tune in these pipelines, and the thread that would can make the end of an iterator
    # wait, as the one that `iterators_end_at_once` keeps away.
    options.autotune.enabled = False
    # Arrays in memory are no files to share out among workers: TensorFlow would try, and warn.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return options
