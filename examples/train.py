"""Train on Fashion-MNIST: one file for the laptop, `course launch`, Slurm and Kubernetes.

    python train.py                                     one process
    course launch --workers 2 train.py --steps 400      two processes on this machine

How many workers there are, and which of them this is, stands in TF_CONFIG, set by whoever starts the script.
It may be killed at any moment: started again, it goes on from its newest checkpoint, with the batch after it.
Told to stop by SIGTERM, it writes one first. Lines that one device would not need are marked.
"""

import argparse
import hashlib
import signal
import sys

import course_utils as cu  # first: it quietens the import of TensorFlow

# isort: split
import keras
import numpy as np
import tensorflow as tf

from course_utils.cluster import faults

STOPPED = 128 + signal.SIGTERM  # the exit code of a program that was told to stop: start it again to go on


def main() -> None:
    options = parse()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()  # distributed: before anything else
    told = notice_sigterm()
    is_chief = cu.checkpoints.is_chief(strategy)  # distributed

    with strategy.scope():  # distributed: all variables are made in here
        model = cu.models.mlp([128], seed=0)
        optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
        saved = cu.checkpoints.Checkpoints(options.checkpoints, model=model, optimizer=optimizer)

    done = saved.restore()
    data = cu.datasets.fashion_mnist().first(train=10_000, test=2_000)
    batches = cu.checkpoints.data_from(done, (data.train_images, data.train_labels), options.global_batch)
    batches = iter(strategy.experimental_distribute_dataset(batches))  # distributed
    train = make_train(strategy, cu.training.train_step(model, optimizer, options.global_batch))

    if is_chief:
        print(f"{strategy.num_replicas_in_sync} replicas, from step {done} to {options.steps}")
        if done >= options.steps:
            print(f"nothing left to train; remove {options.checkpoints} to start anew")
    for step in range(done + 1, options.steps + 1):
        loss, stop = train(next(batches), tf.constant(bool(told)))
        faults.step(step)  # tells the launcher, if there is one, how far we are
        if stop or step % options.save_every == 0 or step == options.steps:
            saved.save(step)  # distributed: on every worker
            if is_chief:
                print(f"step {step:4}  loss {loss:.4f}  saved")
        if stop and step < options.steps:
            sys.exit(STOPPED)

    if is_chief:
        report(model, (data.test_images, data.test_labels), options.out)


def make_train(strategy, on_a_replica):
    """The function (batch, told) → (mean loss, whether any worker was told to stop) of one step."""

    @tf.function
    def train(batch, told):
        losses, stops = strategy.run(  # distributed: on every replica
            lambda batch, told: (on_a_replica(*batch), tf.cast(told, tf.int32)), args=(batch, told)
        )
        # distributed: added up over all replicas, so that all workers decide alike
        return strategy.reduce("SUM", losses, axis=None), strategy.reduce("SUM", stops, axis=None) > 0

    return train


def notice_sigterm() -> list[int]:
    """A list that stays empty until SIGTERM comes. Call it after the strategy, which handles SIGTERM too."""
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
    return told


def report(model, test, out) -> None:
    """Print the accuracy, and what tells these weights from all others; write them to `out`."""
    weights = model.get_weights()
    digest = hashlib.sha256(b"".join(array.tobytes() for array in weights)).hexdigest()
    _, accuracy = cu.training.evaluate(model, test)
    print(f"accuracy on test images {accuracy:.1%}, weights {digest[:16]}")
    if out:
        np.savez(out, *weights)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train on Fashion-MNIST, on any number of workers.")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--global-batch", type=int, default=64, help="examples in one step, on all workers")
    parser.add_argument("--checkpoints", default="checkpoints", help="a folder that all workers can read")
    parser.add_argument("--save-every", type=int, default=20, help="steps between two checkpoints")
    parser.add_argument("--out", help="write the final weights here, as .npz")
    return parser.parse_args()


if __name__ == "__main__":
    main()
