"""Ways to sum gradients over the replicas that send fewer bytes, and an update that does not sum them again.

A *way* is called on a replica with its gradients and returns their sums over all replicas, in float32:

    Cast("float32")        what every optimizer does
    Cast("float16")        half the bytes: 3 digits, nothing above 65,504
    Cast("bfloat16")       half the bytes: 2 digits, the range of float32
    TopK(0.01)             the largest hundredth of the numbers, 8 bytes each; the rest is kept for later
    TwoLevels()            first inside each worker, then one array a worker between them

Sources: Seide et al., 1-bit stochastic gradient descent, 2014 (error feedback); Lin et al., Deep gradient
compression, arXiv:1712.01887 (top-k); Karimireddy et al., arXiv:1901.09847 (why error feedback is needed).
"""

from __future__ import annotations

import itertools
import numbers
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import keras
import numpy as np
import tensorflow as tf

from course_utils import wire
from course_utils.errors import CourseError


class Cast:
    """A way that sums in another type. Bytes sent by each of n workers: 2(n-1)/n times those of the type.

    Raises CourseError where that is no floating type: whole numbers would cut every gradient off.
    """

    def __init__(self, dtype: str = "float32"):
        try:
            self.dtype = tf.as_dtype(dtype)
        except TypeError:
            self.dtype = None
        if self.dtype is None or not self.dtype.is_floating:
            raise CourseError(
                f"Gradients cannot be summed as {dtype!r}.", expected='"float32", "float16" or "bfloat16".'
            )

    def build(self, variables: Sequence) -> None:
        """Nothing to remember from step to step."""

    def __call__(self, gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        # An all-reduce refuses what was made outside the replica's own function, unless it is copied in.
        cast = [tf.cast(tf.identity(gradient), self.dtype) for gradient in gradients]
        sums = tf.distribute.get_replica_context().all_reduce("SUM", cast)
        return [tf.cast(total, tf.float32) for total in sums]


class TopK:
    """A way that sends the numbers of largest size, from all gradients together, with their places.

    fraction: how many of all. Bytes sent by each of n workers: 8(n-1) a number that is sent.
    error_feedback: what is not sent is added to the next step's gradients; without it, it is lost.
    Raises CourseError where the fraction is not above 0 and at most 1.
    """

    def __init__(self, fraction: float, error_feedback: bool = True):
        if not isinstance(fraction, numbers.Real) or not 0 < fraction <= 1:
            raise CourseError(
                f"TopK({fraction!r}) is no part of the numbers.",
                expected="a fraction above 0 and at most 1, such as 0.01.",
            )
        self.fraction, self.error_feedback = fraction, error_feedback
        self.left: tf.Variable | None = None  # what this replica has not sent yet

    def build(self, variables: Sequence) -> None:
        """Make the memory of each replica; call it in the strategy's scope."""
        if self.error_feedback:
            self.left = tf.Variable(
                tf.zeros([sum(_size(variable) for variable in variables)]),
                trainable=False,
                synchronization=tf.VariableSynchronization.ON_READ,  # a copy of its own for each replica
                aggregation=tf.VariableAggregation.SUM,
            )

    def __call__(self, gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        flat = _flat(gradients)
        if self.left is not None:
            flat += self.left
        values, places = largest(flat, self.count(flat.shape[0]))
        if self.left is not None:
            self.left.assign(flat - spread(values, places, flat.shape[0]))
        return _apart(spread(*_gathered(values, places), flat.shape[0]), gradients)

    def count(self, size: int) -> int:
        """How many of `size` numbers are sent: at least one."""
        return max(1, round(self.fraction * size))


class TwoLevels:
    """A way that adds up inside each worker, where no network is, and then once between the workers.

    Bytes sent by each of w workers: 2(w-1)/w times the gradients, however many replicas it has. All workers
    must trace the functions that use it in the same order.
    """

    _group, _instances = 1_000_000, itertools.count(1)  # far from the numbers that TensorFlow gives its own

    def build(self, variables: Sequence) -> None:
        """Nothing to remember from step to step."""

    def __call__(self, gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        flat = _flat(gradients)
        total = tf.distribute.get_replica_context().merge_call(self._between_workers, args=(flat,))
        return _apart(total, gradients)

    def _between_workers(self, strategy, flat):
        mine = strategy.experimental_local_results(flat)
        total, workers = tf.add_n(mine), strategy.num_replicas_in_sync // len(mine)
        if workers == 1:
            return total
        return tf.raw_ops.CollectiveReduceV2(
            input=total,
            group_size=workers,
            group_key=self._group,
            instance_key=next(self._instances),
            ordering_token=[],
            merge_op="Add",
            final_op="Id",
        )


def largest(flat: tf.Tensor, count: int) -> tuple[tf.Tensor, tf.Tensor]:
    """The `count` numbers of largest absolute value, with their signs, and their places (int32)."""
    places = tf.math.top_k(tf.abs(flat), count, sorted=False).indices
    return tf.gather(flat, places), places


def spread(values: tf.Tensor, places: tf.Tensor, size: int) -> tf.Tensor:
    """An array of `size` zeros with the values added at their places; what comes twice is added up."""
    return tf.tensor_scatter_nd_add(tf.zeros([size]), places[:, None], values)


def _flat(gradients):
    return tf.concat([tf.reshape(gradient, [-1]) for gradient in gradients], 0)


def _apart(flat, like):
    """One flat array as arrays of the shapes of `like`."""
    parts = tf.split(flat, [_size(each) for each in like])
    return [tf.reshape(part, each.shape) for part, each in zip(parts, like, strict=True)]


def _gathered(values, places):
    """The values and places of all replicas, in one message from each."""
    message = tf.stack([tf.bitcast(values, tf.int32), places], axis=1)
    everyone = tf.distribute.get_replica_context().all_gather(message, axis=0)
    return tf.bitcast(everyone[:, 0], tf.float32), everyone[:, 1]


def apply_sums(optimizer: keras.Optimizer, sums: Sequence[tf.Tensor], variables: Sequence) -> None:
    """None; updates the variables by gradients that are summed already. Call it on a replica.

    `optimizer.apply` would all-reduce them once more: float32 on the wire, and a gradient that counts every
    replica n times. Raises ValueError where the optimizer does more than its own update step.
    """
    _refuse_extras(optimizer)

    def update(strategy, sums):
        rate = optimizer.learning_rate
        for total, variable in zip(sums, variables, strict=True):
            strategy.extended.update(
                variable.value, lambda v, g: optimizer.update_step(g, v, rate), args=(total,), group=False
            )
        optimizer.iterations.assign_add(1)

    tf.distribute.get_replica_context().merge_call(update, args=(list(sums),))


_EXTRAS = (
    "clipnorm",
    "clipvalue",
    "global_clipnorm",
    "weight_decay",
    "use_ema",
    "loss_scale_factor",
    "gradient_accumulation_steps",
)


def _refuse_extras(optimizer):
    asked = [name for name in _EXTRAS if getattr(optimizer, name, None)]
    if asked:
        raise ValueError(f"apply_sums does not do {', '.join(asked)}: do it to the gradients yourself")


@dataclass(frozen=True)
class Cost:
    """What training in some way has cost this worker a step, and the loss at every step.

    megabytes: sent, 10⁶ bytes; NaN where the system does not tell. seconds: median of the steps.
    """

    megabytes: float
    seconds: float
    losses: list[float]


def compare(
    strategy: tf.distribute.Strategy, trainers: Mapping[str, Callable], steps: int
) -> dict[str, Cost]:
    """The cost of each trainer, a function () → loss that trains one step. Call it on every worker.

    The trainers take turns, step by step, so that a busy moment of the machine hits all of them. Before the
    `steps` that count there is one more, in which TensorFlow traces.
    """
    meet, records = _meeting(strategy), {name: [] for name in trainers}
    for _ in range(steps + 1):
        for name, train in trainers.items():
            sent, start = wire.bytes_sent(), time.perf_counter()
            loss = float(train())
            seconds = time.perf_counter() - start
            meet()  # a worker may be done while its neighbour still reads from it
            records[name].append((loss, seconds, wire.bytes_sent() - sent))
    return {name: _cost(*zip(*each, strict=True)) for name, each in records.items()}


def _cost(losses, seconds, sent):
    return Cost(float(np.mean(sent[1:])) / 1e6, float(np.median(seconds[1:])), list(losses))


def _meeting(strategy):
    """A function in which all workers wait for each other."""
    cast = Cast()
    return tf.function(lambda: strategy.run(lambda: cast([tf.ones([1])])))


def _size(thing) -> int:
    return int(tf.TensorShape(thing.shape).num_elements())
