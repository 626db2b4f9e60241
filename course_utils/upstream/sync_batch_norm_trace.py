"""The slow trace of synchronised BatchNormalization on several replicas of one process.

Fault: an all-reduce inside a replica's function has a gradient of its own (`tf.custom_gradient`). In a graph,
    TensorFlow then looks for variables that the gradient may need: it walks backwards from the result to the
    argument. The result of an all-reduce hangs on *all* replicas, the walk stops at its own argument only,
    and so it goes through all that the other replicas have traced so far: at every all-reduce, of which a
    synchronised BatchNormalization has three, and the deeper the layer, the longer. Of the processor
    time that the trace of `models.resnet_small` took on four replicas (9.1 s, busy machine), half was this.
Reported: not that we know of.
Tested with: TensorFlow 2.21.0.
Cure: replace `custom_gradient._get_dependent_variables`. What it finds it looks up in the graph's collection
    of global variables. Where that is empty, as in every `tf.function`, there is nothing to find: no walk.
"""

import functools

from course_utils.upstream import _guard

_MEND = "sync_batch_norm_trace"
_TESTED = {"tensorflow": ("2.21.0",)}
_FUNCTION = "_get_dependent_variables"
_DIGEST = "e903a9e98254372f"


def enable() -> None:
    """None; traces made from now on leave the walk out. Safe to call again; UpstreamError where untested."""
    from tensorflow.python.ops import custom_gradient as module

    if not _guard.is_mended(module, _FUNCTION):
        _guard.check_versions(_MEND, _TESTED)
        _guard.check_sources(_MEND, {(module, _FUNCTION): _DIGEST})
    _guard.replace(_MEND, module, _FUNCTION, _without_a_walk)


def disable() -> None:
    """None; traces made from now on are TensorFlow's own again. Safe to call again."""
    from tensorflow.python.ops import custom_gradient as module

    _guard.restore(module, _FUNCTION)


def enabled() -> bool:
    """Whether traces made now leave the walk out."""
    from tensorflow.python.ops import custom_gradient as module

    return _guard.is_mended(module, _FUNCTION)


def _without_a_walk(original):
    from tensorflow.python.framework import ops

    @functools.wraps(original)
    def get_dependent_variables(input_ops, output_ops):
        if not ops.get_collection_ref(ops.GraphKeys.GLOBAL_VARIABLES):
            return []
        return original(input_ops, output_ops)

    return get_dependent_variables
