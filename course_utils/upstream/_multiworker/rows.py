"""A row of zeros for a replica without examples: not every kernel takes an empty batch.

The gradient of max-pooling on CPU ends the whole process; the mean of nothing is NaN.
"""

import tensorflow as tf


def count(data):
    """The number of examples in a batch: the rows of its first tensor."""
    first = next(leaf for leaf in tf.nest.flatten(data, expand_composites=False) if leaf is not None)
    return first.nrows() if isinstance(first, tf.RaggedTensor) else tf.shape(first)[0]


def padded(data, empty):
    """`data`, with one row of zeros in each of its tensors where `empty` is true."""
    return tf.nest.map_structure(lambda leaf: _with_a_row(leaf, empty), data)


def real(data, empty):
    """`data` without the row that `padded` put there."""
    return tf.nest.map_structure(lambda leaf: leaf[: tf.where(empty, 0, tf.shape(leaf)[0])], data)


def _with_a_row(values, wanted):
    if not isinstance(values, tf.Tensor):
        return values
    shape = tf.concat([[tf.cast(wanted, tf.int32)], tf.shape(values)[1:]], axis=0)
    return tf.concat([values, tf.zeros(shape, values.dtype)], axis=0)
