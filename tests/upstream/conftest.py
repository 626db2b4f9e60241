"""Each shape of cluster runs once, with all its cases in it; so does the one device of the comparison."""

import functools
from pathlib import Path

import pytest
from upstream_matrix import MATRIX, MIRRORED, MORE, SHAPES, alone, cluster, replicas_of_parts

HERE = str(Path(__file__).parent)


def train_on_one_device(folder, names, orders):
    """The reference: no strategy, no mend. Dropout with the masks of replicas, for each order of them."""
    import sys

    sys.path.insert(0, folder)
    import tensorflow as tf
    import upstream_cases as cases

    strategy = tf.distribute.get_strategy()
    masks = {("dropout", order): cases.dropout_as_on(order, strategy)._asdict() for order in orders}
    return cases.run(names, strategy) | masks


def train_on_workers(folder, names, mirrored=False):
    """(replicas, {case: result}), mended; with `mirrored` on the replicas of this process alone."""
    import sys

    sys.path.insert(0, folder)
    import tensorflow as tf
    import upstream_cases as cases

    from course_utils.upstream import devices_per_worker, epoch_end_stall, keras_multiworker

    for mend in (devices_per_worker, epoch_end_stall, keras_multiworker):
        mend.enable()
        mend.enable()
    devices = [device.name for device in tf.config.list_logical_devices("CPU")] if mirrored else None
    strategy = (
        tf.distribute.MirroredStrategy(devices) if mirrored else tf.distribute.MultiWorkerMirroredStrategy()
    )
    return strategy.num_replicas_in_sync, cases.run(names, strategy)


@pytest.fixture(scope="session")
def one_device():
    """{case: what one device makes of it}."""
    names = [name for name in sum(MORE.values(), MATRIX) if name != "dropout"]
    orders = sorted({replicas_of_parts(shape) for shape in SHAPES})
    return cluster().run(train_on_one_device, HERE, names, orders)[0]


@pytest.fixture(scope="session")
def trained():
    """A function of a shape's name and cases: the number of replicas and, for each worker, {case: result}."""

    @functools.cache
    def train(shape, names):
        results = cluster(*SHAPES[shape]).run(train_on_workers, HERE, names)
        return results[0][0], [by_case for _, by_case in results]

    return lambda shape, names=MATRIX: train(shape, tuple(names))


@pytest.fixture(scope="session")
def mirrored():
    """{case: result} on two replicas of one process, by MirroredStrategy."""
    return alone(train_on_workers, HERE, MIRRORED, True, devices=2)[1]
