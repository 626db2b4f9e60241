"""The references of lesson 06."""

import math

import tensorflow as tf


def learning_rate(step, base_rate, per_replica, replicas, warmup_steps, total_steps):
    peak = base_rate * per_replica * replicas / 256
    if step < warmup_steps:
        return peak * step / warmup_steps
    done = min((step - warmup_steps) / (total_steps - warmup_steps), 1.0)
    return 0.5 * peak * (1 + math.cos(math.pi * done))


def accumulate(model, optimizer, parts, large_batch):
    held = [tf.zeros_like(variable) for variable in model.trainable_variables]
    total = 0.0
    for images, labels in parts:
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            share = tf.reduce_sum(losses) / large_batch
        gradients = tape.gradient(share, model.trainable_variables)
        held = [a + b for a, b in zip(held, gradients, strict=True)]
        total += share
    optimizer.apply(held, model.trainable_variables)
    return total


def keep_the_best(model, train_epoch, validate, epochs, patience):
    losses, best, weights, waited = [], float("inf"), model.get_weights(), 0
    for epoch in range(1, epochs + 1):
        train_epoch(epoch)
        losses.append(float(validate()))
        if losses[-1] < best:
            best, weights, waited = losses[-1], model.get_weights(), 0
        else:
            waited += 1
        if waited == patience:
            break
    model.set_weights(weights)
    return losses
