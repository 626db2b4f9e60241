"""The references of lesson 04."""

import tensorflow as tf


def compute_loss(per_example_loss, global_batch_size):
    return tf.reduce_sum(per_example_loss) / global_batch_size


def loss_with_l2(per_example_loss, weights, global_batch_size, strength):
    l2 = strength * tf.add_n([tf.reduce_sum(weight**2) for weight in weights])
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    return tf.reduce_sum(per_example_loss) / global_batch_size + l2 / replicas


def uneven_loss(per_example_loss):
    here = tf.cast(tf.size(per_example_loss), tf.float32)
    everywhere = tf.distribute.get_replica_context().all_reduce("SUM", here)
    return tf.reduce_sum(per_example_loss) / everywhere
