"""Losses and metrics: each replica counts by its share of the global batch, not by 1 / replicas."""

import functools

from keras.src import ops

from course_utils.upstream._multiworker import share


def scale_by_share(original):
    """Replaces `losses.loss.scale_loss_for_distribution`."""

    @functools.wraps(original)
    def scale_loss_for_distribution(value):
        here = share.current()
        return original(value) if here is None else here.scale(value)

    return scale_loss_for_distribution


def unscale_by_share(original):
    """Replaces `losses.loss.unscale_loss_for_distribution`."""

    @functools.wraps(original)
    def unscale_loss_for_distribution(value):
        here = share.current()
        return original(value) if here is None else here.unscale(value)

    return unscale_loss_for_distribution


def reduce_by_all_weights(original):
    """Replaces `losses.loss.reduce_values`: "mean_with_sample_weight" divides by all replicas' weights."""

    @functools.wraps(original)
    def reduce_values(values, sample_weight=None, reduction="sum_over_batch_size"):
        here = share.current()
        if here is None or reduction != "mean_with_sample_weight" or sample_weight is None:
            loss = original(values, sample_weight, reduction)
            return loss if here is None or reduction != "sum" else here.mark_scaled(loss)
        weights = here.sum(ops.cast(ops.sum(sample_weight), values.dtype))
        return here.mark_scaled(ops.divide_no_nan(ops.sum(values), weights))

    return reduce_values


def mask_by_all_replicas(original):
    """Replaces `losses.loss.apply_mask`: a mean over valid entries counts those of all replicas."""

    @functools.wraps(original)
    def apply_mask(sample_weight, mask, dtype, reduction):
        here = share.current()
        if here is None or mask is None or reduction not in ("mean", "sum_over_batch_size"):
            return original(sample_weight, mask, dtype, reduction)
        valid = ops.cast(mask, dtype)
        total = here.sum(ops.sum(ops.ones_like(valid)))
        weights = valid * ops.divide_no_nan(total, here.sum(ops.sum(valid)))
        # "sum" multiplies by the weights as they are, without a second division by the valid entries here.
        return original(sample_weight, weights, dtype, "sum")

    return apply_mask


def mark_total(original):
    """Replaces `Trainer.compute_loss`: the total, of whatever parts, is known as a loss that was scaled."""

    @functools.wraps(original)
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        loss = original(self, x, y, y_pred, sample_weight, training)
        here = share.current()
        return loss if here is None or loss.shape.rank else here.mark_scaled(loss)

    return compute_loss


def average_by_share(original):
    """Replaces `Mean.update_state`: a loss that is averaged without weights counts by the replica's share.

    This is what makes the loss right that a custom `train_step` puts into a metric of its own.
    """

    @functools.wraps(original)
    def update_state(self, values, sample_weight=None):
        here = share.current()
        if here is not None and here.is_scaled(values):
            values = here.unscale(values)
        if here is not None and sample_weight is None and here.is_unscaled(values):
            sample_weight = here.fraction
        return original(self, values, sample_weight=sample_weight)

    return update_state
