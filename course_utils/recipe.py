"""The ImageNet recipe: what a residual network is trained with, and the job that does it on any strategy.

SGD with momentum 0.9; a learning rate of 0.1 for a global batch of 256, scaled with the batch, reached in 5
warm-up epochs and then lowered by a cosine; weight decay on kernels, not on biases and BatchNormalization;
label smoothing; top-1 and top-5 over the validation pictures. Everything counts by the *global* batch.

Sources: Goyal et al., arXiv:1706.02677 (rate, warm-up, what is decayed); He et al., arXiv:1512.03385
(momentum, decay); Szegedy et al., arXiv:1512.00567, section 7 (label smoothing); He et al.,
arXiv:1812.01187 (cosine).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import keras
import tensorflow as tf

from course_utils import schedules, training


@dataclass(frozen=True)
class Recipe:
    """A recipe in numbers. As it stands: ResNet-50 on ImageNet, on four workers with 64 pictures each."""

    examples: int = 1_281_167
    global_batch: int = 256
    epochs: int = 90
    warmup_epochs: float = 5
    base_rate: float = 0.1  # for a global batch of 256
    momentum: float = 0.9
    weight_decay: float = 1e-4
    label_smoothing: float = 0.1

    @property
    def steps_per_epoch(self) -> int:
        """Updates that see every example at least once."""
        return -(-self.examples // self.global_batch)

    @property
    def steps(self) -> int:
        """Updates of the whole training."""
        return self.epochs * self.steps_per_epoch

    def schedule(self) -> schedules.WarmupCosine:
        """The learning rate of each update."""
        peak = schedules.linear_scaling(self.base_rate, self.global_batch)
        return schedules.WarmupCosine(peak, round(self.warmup_epochs * self.steps_per_epoch), self.steps)

    def optimizer(self) -> keras.optimizers.SGD:
        """SGD with this schedule. Its own `weight_decay` stays off: the decay is part of the loss."""
        return keras.optimizers.SGD(self.schedule(), momentum=self.momentum)


def smoothed_loss(labels: tf.Tensor, logits: tf.Tensor, smoothing: float) -> tf.Tensor:
    """Cross-entropy of each example in nats, shape (batch,), `smoothing` of it spread over all classes."""
    logits = tf.cast(logits, tf.float32)
    classes = logits.shape[-1]
    wanted = (1 - smoothing) * tf.one_hot(labels, classes) + smoothing / classes
    return tf.nn.softmax_cross_entropy_with_logits(wanted, logits)


def decayed(variables: Sequence[keras.Variable]) -> list[keras.Variable]:
    """The kernels among `variables`: those with more than one axis. Biases, gammas and betas have one."""
    return [variable for variable in variables if len(variable.shape) > 1]


def decay_loss(variables: Sequence[keras.Variable], weight_decay: float) -> tf.Tensor:
    """Half the sum of squares of all kernels, times `weight_decay`: a gradient of `weight_decay` × weight."""
    return weight_decay * tf.add_n([tf.nn.l2_loss(tf.cast(v, tf.float32)) for v in decayed(variables)])


def train_step(model: keras.Model, optimizer: keras.Optimizer, recipe: Recipe) -> Callable:
    """The function (images, labels) → share of the loss that trains one step on one replica.

    The examples' losses are divided by the global batch, the decay by the number of replicas: the sum over
    the replicas is the loss that one device would have.
    """

    def step(images, labels):
        replicas = tf.distribute.get_replica_context().num_replicas_in_sync
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            losses = smoothed_loss(labels, logits, recipe.label_smoothing)
            share = training.average_loss(losses, recipe.global_batch)
            share += decay_loss(model.trainable_variables, recipe.weight_decay) / replicas
        gradients = tape.gradient(share, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)  # distributed: sums over the replicas
        return share

    return step


class Scores:
    """Loss, top-1 and top-5 of an evaluation, made in the strategy's scope. Labels below 0 are skipped."""

    def __init__(self):
        self.loss = keras.metrics.Mean()
        self.top1 = keras.metrics.SparseCategoricalAccuracy()
        self.top5 = keras.metrics.SparseTopKCategoricalAccuracy(k=5)

    def reset(self) -> None:
        """None; everything counted is forgotten."""
        for metric in (self.loss, self.top1, self.top5):
            metric.reset_state()

    def count(self, labels: tf.Tensor, logits: tf.Tensor) -> None:
        """None; one replica's examples are counted."""
        counts = tf.cast(labels >= 0, tf.float32)
        labels = tf.maximum(labels, 0)
        self.loss.update_state(training.per_example_loss(labels, logits), sample_weight=counts)
        self.top1.update_state(labels, logits, sample_weight=counts)
        self.top5.update_state(labels, logits, sample_weight=counts)

    def read(self) -> tuple[float, float, float]:
        """(mean loss in nats, top-1, top-5). A meeting: all workers must come."""
        return tuple(float(metric.result()) for metric in (self.loss, self.top1, self.top5))


@dataclass(frozen=True)
class Epoch:
    """One line of the history: learning rate at its end, losses in nats, shares of right answers, seconds."""

    number: int
    rate: float
    train_loss: float
    test_loss: float
    top1: float
    top5: float
    seconds: float

    def __str__(self):
        return (
            f"epoch {self.number:2d} · rate {self.rate:.3f} · train loss {self.train_loss:.3f}"
            f" · test: loss {self.test_loss:.3f}, top-1 {self.top1:.1%}, top-5 {self.top5:.1%}"
            f" · {self.seconds:.1f} s"
        )


class Training:
    """A training in the making: `epoch(1)`, `epoch(2)`, … on whatever strategy.

    `model` and `optimizer` come from the strategy's scope; `train` and `test` are endless distributed
    datasets of (images, labels), `test_steps` batches of `test` are one evaluation. `step` makes the step of
    a replica out of (model, optimizer, recipe).
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        model: keras.Model,
        optimizer: keras.Optimizer,
        recipe: Recipe,
        train: tf.distribute.DistributedDataset,
        test: tf.distribute.DistributedDataset,
        test_steps: int,
        step: Callable = train_step,
    ):
        with strategy.scope():
            if not optimizer.built:
                optimizer.build(model.trainable_variables)  # Keras 3: before the first distributed step
            self.scores = Scores()
        self.model, self.optimizer, self.recipe, self.test_steps = model, optimizer, recipe, test_steps
        with training.iterators_end_at_once():
            self.train_batches, self.test_batches = iter(train), iter(test)
        self._train = training.train_function(strategy, step(model, optimizer, recipe))
        self._evaluate = training.evaluation_function(strategy, self._look)

    def steps(self, number: int) -> float:
        """The mean loss of the next `number` steps, decay included."""
        return float(self._train(self.train_batches, tf.constant(number)))

    def skip(self, number: int) -> None:
        """None; the next `number` batches are read and left out: they were trained on before a restart.

        A resumed training then goes on with the batch after its checkpoint (lesson 10). What is skipped is
        still read and decoded, which takes its time where the data are large.
        """
        for _ in range(number):
            next(self.train_batches)

    def evaluate(self) -> tuple[float, float, float]:
        """(mean loss in nats, top-1, top-5) over the test data, the model as it is used: not training."""
        self.scores.reset()
        self._evaluate(self.test_batches, tf.constant(self.test_steps))
        return self.scores.read()

    def epoch(self, number: int) -> Epoch:
        """The line of epoch `number` (from 1): the steps that are left up to its end, then an evaluation."""
        start = time.perf_counter()
        left = number * self.recipe.steps_per_epoch - int(self.optimizer.iterations.numpy())
        loss = self.steps(left)
        scores = self.evaluate()
        rate = float(self.optimizer.learning_rate)
        return Epoch(number, rate, loss, *scores, time.perf_counter() - start)

    def _look(self, images, labels):
        self.scores.count(labels, self.model(images, training=False))
