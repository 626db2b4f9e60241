"""The train and test function: one step on all replicas, its logs, several steps in one execution."""

import functools

import tensorflow as tf

from course_utils.errors import UpstreamError
from course_utils.upstream._multiworker import rows, share
from course_utils.upstream._multiworker.optimizer import accumulation_of


def applies_to(strategy) -> bool:
    """Whether the mends act under `strategy`: mirrored replicas, on one or on several workers."""
    kinds = (tf.distribute.MirroredStrategy, tf.distribute.MultiWorkerMirroredStrategy)
    return isinstance(strategy, kinds)


def on_several_workers(strategy) -> bool:
    """Whether other processes take part in each step."""
    return applies_to(strategy) and strategy.extended._in_multi_worker_mode()


def make_function_by_share(original):
    """Replaces `TensorFlowTrainer._make_function`."""

    @functools.wraps(original)
    def make_function(self, step_function):
        refuse_jit(self)
        if not applies_to(self.distribute_strategy) or self.jit_compile:
            return original(self, step_function)
        return _StepFunction(self, step_function)

    return make_function


def make_predict_function_checked(original):
    """Replaces `TensorFlowTrainer.make_predict_function`."""

    @functools.wraps(original)
    def make_predict_function(self, force=False):
        refuse_jit(self)
        return original(self, force=force)

    return make_predict_function


def predict_without_examples(original):
    """Replaces `TensorFlowTrainer.predict_step`."""

    @functools.wraps(original)
    def predict_step(self, data):
        if not applies_to(self.distribute_strategy):
            return original(self, data)
        empty = tf.equal(rows.count(data), 0)
        return rows.real(original(self, rows.padded(data, empty)), empty)

    return predict_step


def refuse_jit(model) -> None:
    """None; raises UpstreamError where XLA would have to compile a collective between workers."""
    if model.jit_compile and on_several_workers(model.distribute_strategy):
        raise UpstreamError(
            "jit_compile=True does not work with replicas on several workers.",
            cause="XLA cannot compile the all-reduce between processes on CPU devices.",
            cure='compile the model with jit_compile=False, or leave it at "auto".',
        )


class _StepFunction:
    """What `fit` and `evaluate` call with an iterator, once an execution; returns its last step's logs."""

    def __init__(self, model, step_function):
        self._model = model
        self._strategy = model.distribute_strategy
        self._one_replica = model._autoconvert_optionals(step_function)
        self._accumulates = accumulation_of(model.optimizer) if step_function == model.train_step else 0
        graph = model.run_eagerly is False
        compiled = functools.partial(tf.function, reduce_retracing=True, autograph=False)
        self._on_batches = compiled(self._steps) if graph else self._steps
        self._on_iterator = compiled(self._next_step) if graph else self._next_step

    def __call__(self, iterator):
        updates = self._updates()
        if hasattr(iterator, "start"):
            iterator = iterator.start()
        if len(updates) == 1 and isinstance(iterator, tf.distribute.DistributedIterator):
            return self._on_iterator(iterator, updates)
        return self._on_batches(_take(iterator, len(updates)), updates)

    def _updates(self):
        """For each step of this execution, whether it ends with an update of the weights.

        Decided here, in Python, so that no branch is needed in the graph; the graph is traced once for each
        pattern.
        """
        count = self._model.steps_per_execution
        if not self._accumulates:
            return (True,) * count
        first = int(self._model.optimizer._iterations.numpy()) + 1  # `iterations` counts updates, not steps
        return tuple((first + i) % self._accumulates == 0 for i in range(count))

    def _next_step(self, iterator, updates):
        return self._steps([iterator.get_next()], updates)

    def _steps(self, batches, updates):
        # Unrolled in Python: in a `tf.while_loop` the replicas could not meet for a collective.
        for batch, update in zip(batches, updates, strict=False):
            logs = self._strategy.run(functools.partial(self._step, updates=update), args=(batch,))
        return tf.nest.map_structure(lambda v: self._strategy.experimental_local_results(v)[0], logs)

    def _step(self, data, updates):
        share_of_step = share.of_step(data, bool(self._accumulates), updates)
        with share_of_step as here, here.unchanged(self._model.metrics_variables):
            return _logs_of_all(self._one_replica(rows.padded(data, here.empty)), here)


def _take(iterator, count):
    """Up to `count` batches; raises StopIteration where none is left."""
    # Fetched before the step runs: running out of data inside it would break off the steps before.
    batches = []
    try:
        for _ in range(count):
            batches.append(next(iterator))
    except (StopIteration, tf.errors.OutOfRangeError):
        if not batches:
            raise StopIteration from None
    return batches


def _logs_of_all(logs, here):
    """The logs as all replicas have them together: each value weighted by its replica's share."""
    leaves = tf.nest.flatten(logs)
    numbers = [i for i, leaf in enumerate(leaves) if tf.is_tensor(leaf) and leaf.dtype.is_floating]
    if not numbers:
        return logs
    parts = [leaves[i] if here.is_scaled(leaves[i]) else _part(leaves[i], here) for i in numbers]
    for i, value in zip(numbers, here.sum(parts), strict=True):
        leaves[i] = value
    return tf.nest.pack_sequence_as(logs, leaves)


def _part(value, here):
    return tf.math.multiply_no_nan(value, tf.cast(here.fraction, value.dtype))


def agree_on_finite(original):
    """Replaces `LossScaleOptimizer.check_finite`: one replica's overflow makes all of them skip the step.

    Keras looks at the gradients before they are all-reduced. A worker that skips alone leaves the others
    waiting in a collective for ever.
    """

    @functools.wraps(original)
    def check_finite(self, grads):
        finite = original(self, grads)
        replica = tf.distribute.get_replica_context()
        if replica is None or not applies_to(replica.strategy):
            return finite
        overflows = replica.all_reduce(tf.distribute.ReduceOp.SUM, tf.cast(~finite, tf.float32))
        return tf.equal(overflows, 0.0)

    return check_finite


def refuse_what_cannot_be_right(original):
    """Replaces `TensorFlowTrainer.make_train_function`."""

    @functools.wraps(original)
    def make_train_function(self, force=False):
        if applies_to(self.distribute_strategy) and self.optimizer is not None:
            _refuse_branches(self.optimizer)
        return original(self, force=force)

    return make_train_function


def _refuse_branches(optimizer):
    inner = getattr(optimizer, "inner_optimizer", None)
    if inner is not None and accumulation_of(inner):
        raise UpstreamError(
            "gradient_accumulation_steps does not work on replicas beside mixed_float16's loss scaling.",
            cause="both skip the update inside a branch of the graph, where replicas cannot meet.",
            cure="use mixed_bfloat16, which needs no loss scaling.",
        )
    if getattr(inner or optimizer, "ema_overwrite_frequency", None):
        raise UpstreamError(
            "ema_overwrite_frequency does not work with replicas.",
            cause="the overwrite is a branch of the graph that would have to reach all replicas.",
            cure="leave it out: with use_ema=True the average replaces the weights at the end of fit.",
        )
