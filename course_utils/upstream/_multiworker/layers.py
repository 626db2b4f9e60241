"""Layers: a random mask of its own for each replica; statistics that survive a replica without examples."""

import functools

import tensorflow as tf

from course_utils.upstream._multiworker import rows, share


def fold_in_replica(original):
    """Replaces `SeedGenerator.next`: replica 0 draws what one device draws, every other one its own numbers.

    The state itself advances alike on all replicas, so that workers stay identical.
    """

    @functools.wraps(original)
    def next_seed(self, ordered=True):
        seed = original(self, ordered=ordered)
        here = share.current()
        if here is None:
            return seed
        replica = tf.cast(here.replica.replica_id_in_sync_group, tf.int32)
        folded = tf.random.experimental.stateless_fold_in(tf.cast(seed, tf.int64), replica)
        return tf.where(replica == 0, seed, tf.cast(folded, seed.dtype))

    return next_seed


def keep_statistics_without_examples(original):
    """Replaces `BatchNormalization._moments`: without examples the moving statistics stay as they are."""

    @functools.wraps(original)
    def moments(self, inputs, mask):
        mean, variance = original(self, inputs, mask)
        here = share.current()
        if here is None or self.synchronized:
            return mean, variance
        return (
            tf.where(here.empty, tf.cast(self.moving_mean, mean.dtype), mean),
            tf.where(here.empty, tf.cast(self.moving_variance, variance.dtype), variance),
        )

    return moments


def synchronise_real_examples(original):
    """Replaces `nn._compute_moments_sync`: the row that fills an empty batch does not count."""

    @functools.wraps(original)
    def compute_moments_sync(x, axes, keepdims):
        here = share.current()
        return original(x if here is None else rows.real(x, here.empty), axes, keepdims)

    return compute_moments_sync
