"""What one replica knows about a step of `fit` or `evaluate`: how large its part of the global batch is.

Keras divides each replica's mean loss by the number of replicas, which is right only where all of them have
equally many examples. The exact factor is the replica's share: its examples / all examples of this step.
"""

import contextlib
import threading

import tensorflow as tf

from course_utils.upstream._multiworker import rows

_current = threading.local()


class Share:
    """A replica's share of the step that it is in. Made inside `strategy.run`, on every replica alike."""

    def __init__(self, data, accumulates: bool = False, updates: bool = True):
        self.replica = tf.distribute.get_replica_context()
        self.accumulates, self.updates = accumulates, updates
        examples = rows.count(data)
        self.empty = tf.equal(examples, 0)
        self.fraction = self._of_all(tf.cast(examples, tf.float32))
        # Tensors are known by identity: the loss as it goes into the gradient, and as it goes into a metric.
        self._scaled, self._unscaled = [], []

    def _of_all(self, examples):
        return examples / self.sum(examples)

    @contextlib.contextmanager
    def unchanged(self, variables):
        """Metrics and the like do not see the `with` block on a replica without examples."""
        before = [variable.value * 1 for variable in variables]
        yield
        for variable, value in zip(variables, before, strict=True):
            variable.assign(tf.where(self.empty, value, variable.value))

    def sum(self, values):
        """The sum over all replicas, of a tensor or a list of tensors."""
        return self.replica.all_reduce(tf.distribute.ReduceOp.SUM, values)

    def scale(self, value):
        """`value`, a mean over this replica's examples, as its part of the mean over the global batch."""
        # A replica without examples may have NaN for a mean; its part is zero.
        return self.mark_scaled(tf.math.multiply_no_nan(value, tf.cast(self.fraction, value.dtype)))

    def unscale(self, value):
        """What went into `scale`; a loss for each example (`reduction=None`) never went into it."""
        if value.shape.rank:
            return value
        unscaled = tf.math.divide_no_nan(value, tf.cast(self.fraction, value.dtype))
        self._unscaled.append(unscaled)
        return unscaled

    def mark_scaled(self, value):
        """`value` itself, remembered as something whose sum over the replicas is the value of the step."""
        self._scaled.append(value)
        return value

    def is_scaled(self, value) -> bool:
        """Whether `value` is the scaled loss itself, as a custom `train_step` may report it."""
        return any(value is seen for seen in self._scaled)

    def is_unscaled(self, value) -> bool:
        """Whether `value` is what `unscale` gave."""
        return any(value is seen for seen in self._unscaled)


@contextlib.contextmanager
def of_step(data, accumulates: bool = False, updates: bool = True):
    """The share for the replica whose step runs inside the `with` block.

    `accumulates`: the optimizer adds up gradients over steps; `updates`: this step ends with an update.
    """
    _current.share = Share(data, accumulates, updates)
    try:
        yield _current.share
    finally:
        _current.share = None


def current() -> Share | None:
    """The share of the replica that this thread traces; None outside of a mended step."""
    return getattr(_current, "share", None)
