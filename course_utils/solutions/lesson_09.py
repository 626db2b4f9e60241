"""Reference answers of lesson 09."""

import keras


def batch_norm():
    return keras.layers.BatchNormalization(synchronized=True)


def mask_seed(seed, step, replica):
    return [seed, step * 1_000_000 + replica]


def run_epoch(batches, step, accuracy, is_chief):
    for batch in batches:
        step(batch)
    value = accuracy.result()  # a meeting: every worker must come
    if is_chief:
        print(f"accuracy {value:.3f}")
