"""Each shape of cluster runs once, with all its cases in it; so does the one device of the comparison."""

import functools
from pathlib import Path

import pytest
from upstream_matrix import MATRIX, MIRRORED, MORE, SHAPES, alone, cluster, replicas_of_parts
from upstream_training import train_on_one_device, train_on_workers

HERE = str(Path(__file__).parent)


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
