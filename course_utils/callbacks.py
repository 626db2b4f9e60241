"""Keras callbacks for several workers: what each worker measures about itself, and stopping together.

Give them to `fit` on *every* worker. Where they need all workers they say so.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict
from numbers import Real

import keras
import tensorflow as tf

from course_utils.checks import whole
from course_utils.errors import CourseError
from course_utils.timing import Step


class WorkerMetrics(keras.callbacks.Callback):
    """What this worker measures about itself in `fit`; `steps` holds a `timing.Step` for each step.

    report: called with each step as a dictionary, such as `cluster.report`, which sends it to the notebook.

    Nothing here meets the other workers, so it may be given to some of them only: examples are counted in
    this worker's batches, and the loss is the mean over these examples alone, not the `loss` in the logs,
    which is that of all workers. A step in which TensorFlow traced the training function is marked `traced`.

    What `fit` can show: when the batch was there, and when the step was over. What it cannot: where computing
    ends and the all-reduce begins, since both are in one graph, so `computed` is None (`timing.Recorder` in a
    loop of your own has it). The wait for data is this worker's own only if the dataset is endless
    (`repeat()`, and `steps_per_epoch`): with a finite one, TensorFlow asks in each step whether any worker
    has data left, which is an all-reduce, and everyone waits for the slowest input.

    Raises CourseError where a call of the training function is more than one step (`steps_per_execution`).
    It is right on CPU devices. Tensors on a GPU count as there when their computation is queued.
    """

    def __init__(self, report: Callable[[dict], None] | None = None):
        super().__init__()
        self.steps: list[Step] = []
        self._report, self._traced = report, False

    def on_train_begin(self, logs=None) -> None:
        if self.model.steps_per_execution != 1:
            raise CourseError(
                f"WorkerMetrics times single steps; {self.model.steps_per_execution} run in one call here.",
                cure="Compile with steps_per_execution=1 while you measure.",
            )
        replicas = self.model.distribute_strategy.num_replicas_in_sync
        # An ordinary variable, made outside of the scope: each worker has its own, and nobody meets for it.
        self._marks = tf.Variable(tf.zeros([replicas, 2], tf.float64), trainable=False)
        self._original = self.model.train_step
        self.model.train_step = self._marked_step
        self.model.make_train_function(force=True)

    def on_train_end(self, logs=None) -> None:
        del self.model.train_step  # the class has the original
        self.model.train_function = None

    def on_epoch_begin(self, epoch, logs=None) -> None:
        self._before = 0.0, 0.0

    def on_train_batch_begin(self, batch, logs=None) -> None:
        self._marks.assign(tf.zeros_like(self._marks))
        self._traced, self._begin = False, time.time()

    def on_train_batch_end(self, batch, logs=None) -> None:
        end, marks = time.time(), self._marks.numpy()
        step = Step(
            number=len(self.steps),
            begin=self._begin,
            ready=float(marks[:, 0].max()),
            computed=None,
            end=end,
            examples=int(marks[:, 1].sum()),
            loss=self._loss_of_this_step(),
            traced=self._traced,
        )
        self.steps.append(step)
        if self._report:
            self._report(asdict(step))

    def _marked_step(self, data):
        """The model's own step, preceded by a note of when the batch is there and how large it is."""
        self._traced = True  # Python runs this only while TensorFlow traces
        leaves = [leaf for leaf in tf.nest.flatten(data) if leaf is not None]
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        with tf.control_dependencies(leaves):
            examples = tf.cast(tf.shape(leaves[0])[0], tf.float64)
            self._marks[replica].assign(tf.stack([tf.timestamp(), examples]))
        return self._original(data)

    def _loss_of_this_step(self) -> float:
        total, count = _own_loss(self.model)
        total_before, count_before = self._before
        self._before = total, count
        return (total - total_before) / (count - count_before) if count > count_before else float("nan")


def own_loss(model: keras.Model) -> float:
    """The mean loss over the examples that *this worker* has seen since the epoch began; NaN before any.

    No other worker is asked: `model.metrics` keep a count on each replica, and only reading their result is
    an all-reduce.
    """
    total, count = _own_loss(model)
    return total / count if count else float("nan")


def _own_loss(model) -> tuple[float, float]:
    """Sum and number of the losses that this worker's replicas have counted."""
    tracker = next(metric for metric in model.metrics if metric.name == "loss")
    return _local_sum(model, tracker.total), _local_sum(model, tracker.count)


def _local_sum(model, variable) -> float:
    copies = model.distribute_strategy.experimental_local_results(variable.value)
    return float(sum(copy.numpy() for copy in copies))


class StopTogether(keras.callbacks.Callback):
    """Stops `fit` on all workers after the same step, decided from the mean of the workers' own values.

    value: (logs) → a number of this worker's own, such as `lambda logs: own_loss(model)`, or the name of an
    entry of the logs. patience: how many looks without an improvement by more than `min_delta` end the
    training, as in Keras' EarlyStopping. mode: "min" or "max", what is better. every: look after so many
    steps; None looks at the end of each epoch.

    `means` holds what was decided from, `stopped_at` the epoch, or the step of the whole training, counted
    from 0, after which all stopped, None where nobody did.

    Every look is an all-reduce: every worker must have this callback, with the same settings. EarlyStopping
    needs no such help for what Keras puts into the logs, because there `loss` is already that of all workers.

    Raises CourseError where a setting is none, and at the first look where the logs have no such entry.
    """

    def __init__(
        self,
        value: str | Callable[[dict], float],
        *,
        patience: int = 0,
        min_delta: float = 0.0,
        mode: str = "min",
        every: int | None = None,
    ):
        super().__init__()
        if mode not in ("min", "max"):
            raise CourseError(f"StopTogether(mode={mode!r}) cannot be.", expected='"min" or "max".')
        if not callable(value) and not isinstance(value, str):
            raise CourseError(
                f"StopTogether({value!r}) cannot be.",
                expected='a function of the logs, or the name of an entry in them, such as "loss".',
            )
        if isinstance(min_delta, bool) or not isinstance(min_delta, Real) or not 0 <= min_delta < math.inf:
            raise CourseError(f"min_delta cannot be {min_delta!r}.", expected="a number from 0.")
        self._value = value if callable(value) else lambda logs: _entry(logs, value)
        self._patience, self._min_delta = whole("patience", patience, least=0), min_delta
        self._every = None if every is None else whole("every", every, cure="None looks after each epoch.")
        self._sign = 1.0 if mode == "min" else -1.0

    def on_train_begin(self, logs=None) -> None:
        self._mean = mean_over_workers(self.model.distribute_strategy)
        self.means: list[float] = []
        self.stopped_at: int | None = None
        self._best, self._since, self._steps = float("inf"), 0, 0

    def on_train_batch_end(self, batch, logs=None) -> None:
        self._steps += 1
        if self._every and self._steps % self._every == 0:
            self._look(self._steps - 1, logs or {})

    def on_epoch_end(self, epoch, logs=None) -> None:
        if self._every is None:
            self._look(epoch, logs or {})

    def _look(self, now: int, logs: dict) -> None:
        mean = self._mean(self._value(logs))
        self.means.append(mean)
        if self._sign * mean < self._best - self._min_delta:
            self._best, self._since = self._sign * mean, 0
            return
        self._since += 1
        if self._since >= self._patience:
            self.stopped_at, self.model.stop_training = now, True


def _entry(logs, name):
    if name not in logs:
        raise CourseError(
            f"There is no {name!r} in the logs that Keras hands out here.",
            expected=f"one of {', '.join(logs) or 'those of a compiled model'}.",
            cure="Give the name as the line of `fit` shows it, or a function of the logs.",
        )
    return logs[name]


def mean_over_workers(strategy: tf.distribute.Strategy) -> Callable[[float], float]:
    """A function (this worker's value) → the mean of all workers' values: the same number on every worker.

    Each call is an all-reduce, so every worker must make it, equally often and in the same order.
    """

    @tf.function
    def mean(value):
        def on_a_replica():
            # identity: TensorFlow cannot tell on which device a captured tensor is.
            return tf.distribute.get_replica_context().all_reduce("MEAN", tf.identity(value))

        return strategy.run(on_a_replica)

    def of_all(value: float) -> float:
        found = mean(tf.constant(value, tf.float32))
        return float(strategy.experimental_local_results(found)[0])

    return of_all
