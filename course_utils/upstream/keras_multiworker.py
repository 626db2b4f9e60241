"""`Model.fit`, `evaluate` and `predict` on several workers under Keras 3.

Fault: `fit` raises under `MultiWorkerMirroredStrategy`. `_maybe_symbolic_build` reduces a batch of PerReplica
    values outside `run`, and `reduce_per_replica` reduces scalar logs along an axis that they do not have.
Reported: https://github.com/keras-team/keras/issues/20585 (open).
Tested with: Keras 3.15.1 on TensorFlow 2.21.0.
Cure: build from the first local batch; reduce a scalar over the replicas.
"""

import functools

from course_utils.upstream import _guard

_MEND = "keras_multiworker"
_TESTED = {"keras": ("3.15.1",), "tensorflow": ("2.21.0",)}


def enable() -> None:
    """None; from now on Keras trains on several workers. Safe to call again; UpstreamError where untested."""
    from keras.src.backend.tensorflow import trainer

    if _guard.is_mended(trainer, "reduce_per_replica"):
        return
    _guard.check_versions(_MEND, _TESTED)
    digests = {
        (trainer.TensorFlowTrainer, "_maybe_symbolic_build"): "b0ca9a63ed295fb9",
        (trainer, "reduce_per_replica"): "2e7d54b1e6edc29a",
    }
    _guard.check_sources(_MEND, digests)
    _guard.replace(_MEND, trainer.TensorFlowTrainer, "_maybe_symbolic_build", _build_from_a_local_batch)
    _guard.replace(_MEND, trainer, "reduce_per_replica", _reduce_scalars_over_replicas)


def _build_from_a_local_batch(original):
    import tensorflow as tf

    @functools.wraps(original)
    def maybe_symbolic_build(self, iterator=None, data_batch=None):
        if iterator is None or self._distribute_strategy is None:
            return original(self, iterator=iterator, data_batch=data_batch)
        strategy = self._distribute_strategy
        for _, _, batches in iterator:
            first = tf.nest.map_structure(lambda x: strategy.experimental_local_results(x)[0], next(batches))
            return original(self, data_batch=first)

    return maybe_symbolic_build


def _reduce_scalars_over_replicas(original):
    import tensorflow as tf

    @functools.wraps(original)
    def reduce_per_replica(values, strategy, reduction):
        if reduction not in ("auto", "mean"):
            return original(values, strategy, reduction)
        return tf.nest.map_structure(lambda v: _mean(v, strategy), values)

    return reduce_per_replica


def _mean(value, strategy):
    scalar = strategy.experimental_local_results(value)[0].shape.rank == 0
    return strategy.reduce("MEAN", value, axis=None if scalar else 0)
