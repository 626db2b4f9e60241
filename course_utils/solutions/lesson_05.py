"""The references of lesson 05."""

import tensorflow as tf


def train_step(model, optimizer, images, labels, global_batch_size):
    with tf.GradientTape() as tape:
        logits = model(images, training=True)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        loss = tf.reduce_sum(losses) / global_batch_size
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply(gradients, model.trainable_variables)
    return loss


def run_epochs(strategy, step, dataset, epochs, steps, accuracy):
    batches = iter(dataset)
    history = []
    for _ in range(epochs):
        accuracy.reset_state()
        total = 0.0
        for _ in range(steps):
            shares = strategy.run(step, args=next(batches))
            total += strategy.reduce("SUM", shares, axis=None)
        history.append((float(total / steps), float(accuracy.result())))
    return history


def train_and_restore(train_epoch, epochs, model, optimizer, plain, folder):
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
    for epoch in range(1, epochs + 1):
        train_epoch(epoch)
        if epoch % 2 == 0 or epoch == epochs:
            checkpoint.save(f"{folder}/ckpt")
    status = tf.train.Checkpoint(model=plain).restore(tf.train.latest_checkpoint(folder))
    status.assert_existing_objects_matched()
