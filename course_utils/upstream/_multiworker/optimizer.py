"""Optimizers: clip what all replicas found together, accumulate without a branch around a collective."""

import functools

import tensorflow as tf

from course_utils.upstream._multiworker import share


def apply_as_one_device(original):
    """Replaces `BaseOptimizer._backend_apply_gradients`.

    Keras clips each replica's own gradient before they are summed, and waits to add up `n` steps inside a
    `tf.cond`, where replicas cannot meet for a collective.
    """

    @functools.wraps(original)
    def backend_apply_gradients(self, grads, variables):
        here = share.current()
        if here is None or not (here.accumulates or _clips(self)):
            return original(self, grads, variables)
        held = _accumulators(self, variables) if here.accumulates else None
        if not here.updates:
            self._backend_increment_gradient_accumulators(grads, held)
        else:
            _update(self, here, grads, variables, held)
        if self.use_ema:
            self._update_model_variables_moving_average(self._trainable_variables)

    return backend_apply_gradients


def accumulation_of(optimizer) -> int:
    """How many steps the optimizer adds up before it updates; 0 where it does not."""
    return getattr(optimizer, "gradient_accumulation_steps", None) or 0


def _update(optimizer, here, grads, variables, held):
    if held is not None:
        steps = optimizer.gradient_accumulation_steps
        grads = [(g + h) / steps for g, h in zip(grads, held, strict=True)]
    if _clips(optimizer):
        grads = _clipped_together(optimizer, here, grads)
    optimizer._apply_weight_decay(variables)
    optimizer._backend_update_step(grads, variables, optimizer.learning_rate)
    if held is not None:
        optimizer._backend_reset_gradient_accumulators()


def _clipped_together(optimizer, here, grads):
    clipped = optimizer._clip_gradients(here.sum(list(grads)))
    # The update step sums over the replicas once more: each gives an equal part.
    return [_divided(g, here.replica.num_replicas_in_sync) for g in clipped]


def _divided(gradient, by):
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(gradient.values / by, gradient.indices, gradient.dense_shape)
    return gradient / by


def _clips(optimizer) -> bool:
    limits = (optimizer.clipnorm, optimizer.clipvalue, optimizer.global_clipnorm)
    return any(limit is not None for limit in limits)


def _accumulators(optimizer, variables):
    return [optimizer._accumulated_gradients[optimizer._get_variable_index(v)] for v in variables]
