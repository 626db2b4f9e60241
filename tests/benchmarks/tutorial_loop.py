"""The custom loop as public tutorials write it, changed only where Keras 3 makes it crash.

Two virtual CPU devices, 64 images a replica, a new iterator over the distributed dataset every epoch, one
call from Python for every step. Kept apart from `course_utils`, so that the course's own loop is measured
against something that shares no code with it: only the files are read with it, and the first weights and the
order of the examples are the course's, so that accuracies are compared run by run and not by luck.
"""

import time

import numpy as np
import tensorflow as tf

from course_utils import datasets, models

BATCH_PER_REPLICA = 64


def train(epochs: int, seed: int) -> dict[str, float]:
    """Seconds of whole epochs (their ends counted, the first trace too) and test accuracy."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    batch = BATCH_PER_REPLICA * strategy.num_replicas_in_sync
    data = datasets.fashion_mnist()
    train_batches = strategy.experimental_distribute_dataset(
        _scaled(data.train_images, data.train_labels).shuffle(len(data.train_labels), seed=seed).batch(batch)
    )
    with strategy.scope():
        model, optimizer = _network(), tf.keras.optimizers.Adam()
        model.set_weights(models.cnn(seed=seed).get_weights())
        optimizer.build(model.trainable_variables)
        loss_object = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
        accuracy = tf.keras.metrics.SparseCategoricalAccuracy()

    def train_step(images, labels):
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            loss = tf.nn.compute_average_loss(loss_object(labels, logits), global_batch_size=batch)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        accuracy.update_state(labels, logits)
        return loss

    @tf.function
    def distributed_train_step(images, labels):
        return strategy.reduce("SUM", strategy.run(train_step, args=(images, labels)), axis=None)

    begin = time.perf_counter()
    for _epoch in range(epochs):
        total, steps = 0.0, 0
        for images, labels in train_batches:
            total += distributed_train_step(images, labels)
            steps += 1
        float(total / steps)
    seconds = time.perf_counter() - begin
    return {"seconds": seconds, "accuracy": _test_accuracy(model, data)}


def _network():
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.Input((28, 28, 1)),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(80, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(10),
        ]
    )


def _scaled(images, labels):
    return tf.data.Dataset.from_tensor_slices((images / np.float32(255), labels))


def _test_accuracy(model, data) -> float:
    right = 0
    for images, labels in _scaled(data.test_images, data.test_labels).batch(1000):
        right += int(tf.reduce_sum(tf.cast(tf.argmax(model(images, training=False), 1) == labels, tf.int32)))
    return right / len(data.test_labels)
