"""Reference answers of lesson 10."""

import os
import shutil

import tensorflow as tf


def is_chief(resolver):
    if resolver.task_type == "worker":
        return resolver.task_id == 0 and "chief" not in resolver.cluster_spec().jobs
    return resolver.task_type in (None, "chief")


def save_everywhere(checkpoint, path, chief, worker):
    mine = path if chief else os.path.join(f"{path}-temp-{worker}", "checkpoint")
    checkpoint.write(mine)  # a meeting: every worker must come
    if not chief:
        shutil.rmtree(os.path.dirname(mine))


def resume(folder, model, optimizer, done, data):
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, done=done)
    latest = tf.train.latest_checkpoint(folder)
    if latest is not None:
        checkpoint.restore(latest).assert_existing_objects_matched()
    return data.skip(int(done.numpy()))
