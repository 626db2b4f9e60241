"""Where batches come from: build without taking one, start iterators late, one order for all workers."""

import contextlib
import functools
import random

import tensorflow as tf
from keras.src.trainers import epoch_iterator
from keras.src.trainers.data_adapters import py_dataset_adapter, tf_dataset_adapter
from tensorflow.python.eager import context

from course_utils.upstream._multiworker import step


def build_from_the_spec(original):
    """Replaces `TensorFlowTrainer._maybe_symbolic_build`.

    Keras takes a batch and averages it over the replicas, which fails between workers; and a batch that was
    taken from a Python generator never comes back.
    """

    @functools.wraps(original)
    def maybe_symbolic_build(self, iterator=None, data_batch=None):
        if iterator is None or not step.applies_to(self._distribute_strategy):
            return original(self, iterator=iterator, data_batch=data_batch)
        spec = tf.nest.map_structure(_local_spec, iterator._distributed_dataset.element_spec)
        if isinstance(iterator.data_adapter, tf_dataset_adapter.TFDatasetAdapter) and _has_gaps(spec):
            batch = next(iter(iterator._distributed_dataset))
            spec = tf.nest.map_structure(
                lambda x: self._distribute_strategy.experimental_local_results(x)[0], batch
            )
        return original(self, data_batch=spec)

    return maybe_symbolic_build


def _local_spec(spec):
    """The first local replica's part of a spec; None where the leaf is an empty optional."""
    spec = getattr(spec, "_value_specs", (spec,))[0]
    return None if isinstance(spec, tf.OptionalSpec) else spec


def _has_gaps(spec) -> bool:
    return any(s.shape.rank is None or None in s.shape[1:] for s in tf.nest.flatten(spec) if s is not None)


class _Deferred:
    """An iterator over a distributed dataset that does not exist before its first use.

    `EpochIterator` makes one more at the end of each epoch than it uses. A distributed iterator takes time to
    make, reads ahead as soon as it exists, and may block when it ends (`epoch_end_stall`).
    """

    def __init__(self, dataset):
        self._dataset, self._iterator = dataset, None

    def __iter__(self):
        return self if self._iterator is None else _Deferred(self._dataset)

    def __next__(self):
        return next(self.start())

    def start(self):
        """The iterator itself."""
        if self._iterator is None:
            self._iterator = iter(self._dataset)
        return self._iterator


def iterate_late(original):
    """Replaces `TFEpochIterator._get_iterator`."""

    @functools.wraps(original)
    def get_iterator(self):
        dataset = original(self)
        return _Deferred(dataset) if step.applies_to(self._distribute_strategy) else dataset

    return get_iterator


def order_alike(original):
    """Replaces `TFEpochIterator.__init__`.

    Every worker shuffles all examples and keeps its part of each batch. With an order of its own on each
    worker the parts do not fit together: some examples come twice in an epoch, others never.
    """

    @functools.wraps(original)
    def init(self, distribute_strategy=None, *args, **kwargs):
        if not step.on_several_workers(distribute_strategy):
            return original(self, distribute_strategy, *args, **kwargs)
        epoch_iterator.EpochIterator.__init__(self, *args, **kwargs)
        self._distribute_strategy = distribute_strategy
        with _same_order(self.data_adapter, distribute_strategy):
            dataset = self.data_adapter.get_tf_dataset()
        if not isinstance(dataset, tf.distribute.DistributedDataset):
            dataset = distribute_strategy.experimental_distribute_dataset(dataset)
        self._distributed_dataset = dataset

    return init


@contextlib.contextmanager
def _same_order(adapter, strategy):
    if not (getattr(adapter, "_shuffle", False) or getattr(adapter, "shuffle", False)):
        yield
        return
    seed = _seed_of_all(strategy)
    if isinstance(adapter, py_dataset_adapter.PyDatasetAdapter):
        _shuffle_alike(adapter, seed)
    with _graph_seed(seed):
        yield


def _seed_of_all(strategy) -> int:
    """One seed on all workers: their global seed where it is the same, else one that the chief draws."""
    mine = context.global_seed()
    drawn = random.SystemRandom().randrange(2**31)

    def gather():
        replica = tf.distribute.get_replica_context()
        return replica.all_gather(tf.constant([[-1 if mine is None else mine, drawn]], tf.int64), axis=0)

    seeds = strategy.experimental_local_results(tf.function(strategy.run)(gather))[0].numpy()
    same = mine is not None and (seeds[:, 0] == mine).all()
    return int(seeds[0, 0] if same else seeds[0, 1])


@contextlib.contextmanager
def _graph_seed(seed):
    """Datasets made inside take their random numbers from `seed`; the caller's own random state is kept."""
    here = context.context()
    before = {name: vars(here)[name] for name in ("_seed", "_rng") if name in vars(here)}
    here._seed, here._rng = seed, random.Random(seed)
    try:
        yield
    finally:
        del here._seed, here._rng
        vars(here).update(before)


def _shuffle_alike(adapter, seed):
    if adapter.py_dataset.num_batches is None:
        return
    adapter.py_dataset = _Reordered(adapter.py_dataset, seed)
    adapter.shuffle = False
    if adapter.enqueuer is not None:
        adapter.enqueuer.py_dataset, adapter.enqueuer.shuffle = adapter.py_dataset, False


class _Reordered:
    """A PyDataset whose batches come in a new order each epoch, the same for equal seeds."""

    def __init__(self, dataset, seed):
        self._dataset, self._random = dataset, random.Random(seed)
        self._order = list(range(dataset.num_batches))

    def __getattr__(self, name):
        if name.startswith("__") or name == "_dataset":
            raise AttributeError(name)
        return getattr(self._dataset, name)

    def __getitem__(self, index):
        return self._dataset[self._order[index]]

    def on_epoch_begin(self):
        """A new order, then whatever the dataset itself does."""
        self._random.shuffle(self._order)
        self._dataset.on_epoch_begin()
