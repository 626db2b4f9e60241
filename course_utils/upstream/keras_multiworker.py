"""`Model.fit`, `evaluate` and `predict` on several workers under Keras 3, equal to one device.

Reported: https://github.com/keras-team/keras/issues/20585 (open: `fit` raises under
    `MultiWorkerMirroredStrategy`). The other faults below were met on the way.
Tested with: Keras 3.15.1 on TensorFlow 2.21.0, CPU devices, up to 4 workers.
Where it acts: inside `fit`, `evaluate` and `predict` under `MultiWorkerMirroredStrategy` and
    `MirroredStrategy`. Custom loops and all other strategies run Keras' own code.

Faults and cures:
  - `fit` raises, for it builds the model from a batch that it averages over replicas, eagerly: build from the
    dataset's spec.
  - `fit` raises, for it reduces scalar logs along an axis that they lack: one all-reduce for all logs.
  - A short last batch counts for every replica alike, whatever each got: each counts by its share.
  - A replica without examples gives NaN (BatchNormalization) or ends the process (max-pooling's gradient): it
    gets a row of zeros that counts nowhere.
  - `steps_per_execution` > 1 fails to trace: the steps are unrolled in Python.
  - `gradient_accumulation_steps` fails to trace: Python decides which step updates.
  - `clipnorm` and its kin clip each replica's gradient before they are summed: the sum is clipped.
  - Dropout has the same mask on every replica: the replica's index is folded into the seed.
  - Arrays and PyDatasets are shuffled in another order on each worker, so that examples are lost and doubled:
    one seed for all.
  - A Python generator loses the batches from which the model was built: none is taken any more.
  - Every epoch makes a second iterator that nobody reads, though it takes time to make and reads ahead:
    iterators are made when first used.
  - Means over unmasked entries, or over sample weights, are one for each replica: one over all replicas.
  - A custom `train_step` reports its loss divided by the number of replicas: it reports the loss.
  - The loss scaling of float16 asks one replica alone whether its gradients overflow, and workers may part:
    all are asked.

What you get: weights, epoch logs and scores as on one device. Every worker has all of them, and all rows of
`predict` in the dataset's order. EarlyStopping and the like stop all workers together, because their logs are
equal. Logs within an epoch are the replicas' running values, weighted by their examples: exact for losses and
accuracies over even batches. Dropout draws other numbers than one device would, since each replica draws for
its own rows; the same in every run with the same number of replicas.

Refused with UpstreamError: `jit_compile=True` on several workers (XLA cannot compile collectives on CPU
devices); `gradient_accumulation_steps` together with mixed_float16; `ema_overwrite_frequency`.

Yours to see to: a seed for your own `tf.data` shuffle; a Python generator that yields the same batches on
every worker; a path of its own for each worker in callbacks that write files; `synchronized=True` in
BatchNormalization, which otherwise keeps statistics for each replica.
"""

from course_utils.upstream import _guard

_MEND = "keras_multiworker"
_TESTED = {"keras": ("3.15.1",), "tensorflow": ("2.21.0",)}


def enable() -> None:
    """None; from now on Keras trains on several workers. Safe to call again; UpstreamError where untested."""
    mends = _mends()
    if all(_guard.is_mended(owner, name) for owner, name, *_ in mends):
        return
    _guard.check_versions(_MEND, _TESTED)
    _guard.check_sources(_MEND, {(owner, name): digest for owner, name, digest, _ in mends} | _relied_on())
    for owner, name, _, mended in mends:
        _guard.replace(_MEND, owner, name, mended)


def _mends():
    """(owner, name, digest of what is replaced, what makes the replacement), a row each."""
    from keras.src.backend.tensorflow import nn, trainer
    from keras.src.layers import BatchNormalization
    from keras.src.losses import loss
    from keras.src.metrics import Mean
    from keras.src.optimizers.base_optimizer import BaseOptimizer
    from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer
    from keras.src.random.seed_generator import SeedGenerator
    from keras.src.trainers.trainer import Trainer

    from course_utils.upstream._multiworker import data, layers, losses, optimizer, step

    model = trainer.TensorFlowTrainer
    return [
        (model, "_maybe_symbolic_build", "b0ca9a63ed295fb9", data.build_from_the_spec),
        (model, "_make_function", "93aaf1c139f8a7e7", step.make_function_by_share),
        (model, "make_train_function", "32ed2497a43fc59d", step.refuse_what_cannot_be_right),
        (model, "make_predict_function", "1eaed75e3c924b1e", step.make_predict_function_checked),
        (model, "predict_step", "fcf5c297d5c6e334", step.predict_without_examples),
        (trainer.TFEpochIterator, "__init__", "b72d6c54d6c94b9a", data.order_alike),
        (trainer.TFEpochIterator, "_get_iterator", "1c7ba94141eaacc0", data.iterate_late),
        (loss, "scale_loss_for_distribution", "143cd8a5efb6cb17", losses.scale_by_share),
        (loss, "unscale_loss_for_distribution", "3903c7ed7f69c5ac", losses.unscale_by_share),
        (loss, "reduce_values", "60b0462147725ad2", losses.reduce_by_all_weights),
        (loss, "apply_mask", "61d8938cd8663dee", losses.mask_by_all_replicas),
        (Trainer, "compute_loss", "8221c262b5c29a32", losses.mark_total),
        (Mean, "update_state", "95d8f56903bac877", losses.average_by_share),
        (SeedGenerator, "next", "46839926742a5f98", layers.fold_in_replica),
        (BatchNormalization, "_moments", "f4578c2a868c5967", layers.keep_statistics_without_examples),
        (nn, "_compute_moments_sync", "4ef59a47d67b32b8", layers.synchronise_real_examples),
        (BaseOptimizer, "_backend_apply_gradients", "46e0e03aeba75033", optimizer.apply_as_one_device),
        (LossScaleOptimizer, "check_finite", "37893b552f63d2d2", step.agree_on_finite),
    ]


def _relied_on():
    """Digests of what stays as it is, but whose working the mends count on."""
    from keras.src.backend.tensorflow import trainer
    from keras.src.trainers.epoch_iterator import EpochIterator

    model = trainer.TensorFlowTrainer
    return {
        (model, "fit"): "02d3f5fc93e06d07",
        (model, "evaluate"): "f1613c2c9f4135ed",
        (model, "predict"): "7052a771d76a3afe",
        (model, "train_step"): "f88fee4148c7a485",
        (model, "test_step"): "b79d387499f351f9",
        (trainer, "reduce_per_replica"): "2e7d54b1e6edc29a",
        (trainer, "_multi_worker_concat"): "2137073bfe27fb92",
        (EpochIterator, "_enumerate_iterator"): "28fa4fab7a0285df",
    }
