"""The stall at the end of an epoch over a distributed dataset.

Fault: ending or dropping an iterator of a distributed dataset with several devices often blocks for seconds,
    in steps of about 10 ms x 2^k (1.3, 2.6, 5.1, 10.3 s). Each device reads through a small dataset of its
    own inside the multi-device iterator. That dataset has an autotune thread which sleeps in doubling steps,
    and is not woken when its iterator goes: who drops the iterator waits until it wakes by itself. Options on
    the user's own dataset do not reach it.
Reported: users see the slowness, not the cause: https://github.com/tensorflow/tensorflow/issues/103564 (open:
    MirroredStrategy much slower than one device).
Tested with: TensorFlow 2.21.0.
Cure: wrap `multi_device_iterator_ops._create_device_dataset` so that the small dataset has
    `autotune.enabled = False`. It only hands over one finished batch: there is nothing in it to tune. With
    one iterator over a `repeat()`ed dataset no cure is needed.
What stays: an iterator that is dropped in the middle of an epoch may still block, about one time in twenty.
"""

import functools

from course_utils.upstream import _guard

_MEND = "epoch_end_stall"
_TESTED = {"tensorflow": ("2.21.0",)}
_FUNCTION = "_create_device_dataset"
_DIGEST = "ba5247af44bd3957"


def enable() -> None:
    """None; iterators made from now on end at once. Safe to call again; UpstreamError where untested."""
    from tensorflow.python.data.ops import multi_device_iterator_ops as module

    if not _guard.is_mended(module, _FUNCTION):
        _guard.check_versions(_MEND, _TESTED)
        _guard.check_sources(_MEND, {(module, _FUNCTION): _DIGEST})
    _guard.replace(_MEND, module, _FUNCTION, _without_autotune)


def disable() -> None:
    """None; iterators made from now on are TensorFlow's own again. Safe to call again."""
    from tensorflow.python.data.ops import multi_device_iterator_ops as module

    _guard.restore(module, _FUNCTION)


def enabled() -> bool:
    """Whether iterators made now end at once."""
    from tensorflow.python.data.ops import multi_device_iterator_ops as module

    return _guard.is_mended(module, _FUNCTION)


def _without_autotune(original):
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False

    @functools.wraps(original)
    def create_device_dataset(*args, **kwargs):
        return original(*args, **kwargs).with_options(options)

    return create_device_dataset
