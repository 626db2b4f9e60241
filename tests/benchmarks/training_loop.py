"""Lesson 05's training loop against the loop of public tutorials: images a second and test accuracy.

Three epochs of all 60,000 images of Fashion-MNIST on two virtual CPU devices, batch 64 a replica, Adam:
the same network, data and hardware on each side. Counted are whole epochs: the first trace and whatever
happens at their ends belong to them. Each run has a process of its own, which `python -m
tests.benchmarks.training_loop SIDE SEED` starts.
"""

import json
import statistics
import subprocess
import sys

from course_utils import datasets

from .measure import console, in_turn, print_ratios

EPOCHS = 3
ROUNDS = 5
LIMIT = 900  # seconds that any single run may take
SIDES = {"tutorial": None, "course float32": "float32", "course bfloat16": "mixed_bfloat16"}
BARS = {"course float32": 1.5, "course bfloat16": 2.5}
POINTS = 0.3  # how far mean accuracies may lie apart, in percentage points


def main() -> None:
    """Print ratios of time for the same images, and the accuracies that go with them."""
    console.print(
        f"\n[bold]{EPOCHS} epochs of Fashion-MNIST[/bold] (median of {ROUNDS}, another seed each round)"
    )
    accuracies = {name: [] for name in SIDES}

    def side(name):
        def once(round_):
            result = _in_own_process(name, seed=round_)
            accuracies[name].append(100 * result["accuracy"])
            return result["seconds"]

        return once

    seconds = in_turn({name: side(name) for name in SIDES}, ROUNDS)
    print_ratios("Training loop, same images", seconds, "tutorial", BARS)
    for name, values in accuracies.items():
        away = statistics.mean(values) - statistics.mean(accuracies["tutorial"])
        verdict = f"{away:+.2f} points, within {POINTS}: {'yes' if abs(away) <= POINTS else 'NO'}"
        per_second = 60_000 * EPOCHS / statistics.median(seconds[name])
        console.print(
            f"{name}: {per_second:,.0f} images/s; test accuracy {statistics.mean(values):.2f} % ({verdict})"
        )


def train(side: str, seed: int) -> dict[str, float]:
    """Seconds and test accuracy of one run, in this process."""
    if SIDES[side] is None:
        from . import tutorial_loop

        return tutorial_loop.train(EPOCHS, seed)
    return _train_as_lesson_05(SIDES[side], seed)


def _train_as_lesson_05(dtype, seed):
    import time

    import tensorflow as tf

    from course_utils import devices, models, training

    data = datasets.fashion_mnist()
    strategy = devices.mirrored(2)
    begin = time.perf_counter()
    with strategy.scope():
        model, optimizer = models.cnn(seed=seed, dtype=dtype), tf.keras.optimizers.Adam()
    training.fit_epochs(
        strategy,
        model,
        optimizer,
        (data.train_images, data.train_labels),
        epochs=EPOCHS,
        global_batch_size=128,
        seed=seed,
    )
    seconds = time.perf_counter() - begin
    _loss, accuracy = training.evaluate(model, (data.test_images, data.test_labels))
    return {"seconds": seconds, "accuracy": accuracy}


def _in_own_process(side, seed):
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.training_loop", side, str(seed)],
        stdout=subprocess.PIPE,
        text=True,
        timeout=LIMIT,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    if sys.argv[1:]:
        print(json.dumps(train(sys.argv[1], int(sys.argv[2]))))
    else:
        main()
