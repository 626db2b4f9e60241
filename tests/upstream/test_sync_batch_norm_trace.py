"""The trace without the search: nothing is walked through, and what is computed stays the same."""

from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.ops import custom_gradient

from course_utils import devices
from course_utils.upstream import sync_batch_norm_trace

devices.simulate(4)


def gradient_of_a_synchronised_layer(mended):
    """(gradient of gamma on two replicas, how many walks tracing it took)."""
    tf.compat.v1.reset_default_graph()  # an earlier test may have left variables, for which TensorFlow walks
    strategy = devices.mirrored(2)
    with strategy.scope():
        layer = keras.layers.BatchNormalization(synchronized=True)
        layer.build((None, 3))
    batch = np.random.default_rng(0).normal(size=(8, 3)).astype("f4")
    data = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensors(batch).unbatch().batch(8))

    def gradient(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(x, training=True) ** 3)
        return tape.gradient(loss, layer.gamma.value)

    walk = custom_gradient.op_selector.get_backward_walk_ops
    with mock.patch.object(custom_gradient.op_selector, "get_backward_walk_ops", side_effect=walk) as walks:
        (sync_batch_norm_trace.enable if mended else sync_batch_norm_trace.disable)()
        try:
            summed = tf.function(lambda x: strategy.reduce("SUM", strategy.run(gradient, (x,)), None))
            return summed(next(iter(data))).numpy(), walks.call_count
        finally:
            sync_batch_norm_trace.disable()


def test_the_gradient_is_the_same_and_no_walk_is_made():
    usual, walks = gradient_of_a_synchronised_layer(mended=False)
    mended, none = gradient_of_a_synchronised_layer(mended=True)
    np.testing.assert_array_equal(mended, usual)
    assert walks >= 6 and none == 0, "Does TensorFlow still walk at all?"


def test_where_a_graph_has_variables_of_its_own_they_are_still_looked_for():
    original = custom_gradient._get_dependent_variables
    sync_batch_norm_trace.enable()
    try:
        assert sync_batch_norm_trace.enabled()
        with tf.Graph().as_default():
            weight = tf.compat.v1.get_variable("weight", (), use_resource=True)
            x = tf.constant(1.0)
            found = custom_gradient._get_dependent_variables([x], [x * weight])
            assert [variable.name for variable in found] == ["weight:0"]
    finally:
        sync_batch_norm_trace.disable()
    assert custom_gradient._get_dependent_variables is original
