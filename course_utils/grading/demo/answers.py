"""What learners write into lesson 04, and what has to come of it.

Right answers in different hands, each known mistake in words of a learner's own (not the course's), answers
that stop half-way, and some that try something else than to solve the exercise. Written as text: none of it
is ever run in the grader's own process.
"""

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

LESSON = "04"
SIGNATURES = {
    "04.compute_loss": "compute_loss(per_example_loss, global_batch_size)",
    "04.l2_loss": "loss_with_l2(per_example_loss, weights, global_batch_size, strength)",
    "04.uneven_batch": "uneven_loss(per_example_loss)",
}
PASSED, FAILED, RAISED = "passed", "failed", "raised"
TIMED_OUT, UNTOUCHED = "timed out", "not attempted"


@dataclass(frozen=True)
class Variant:
    """One answer: the source of its cell, and what the grader has to say of it."""

    exercise_id: str
    source: str
    outcome: str = PASSED
    mistake: str | None = None
    look: bool = False  # whether an instructor must be told to look at it


def right() -> list[Variant]:
    """Answers that earn all points."""
    return [*_variants(_RIGHT, PASSED)]


def wrong() -> list[Variant]:
    """Every known mistake, at least once, and answers that are wrong in ways of their own."""
    known = [
        Variant(exercise_id, _cell(exercise_id, body), outcome, mistake)
        for exercise_id, mistakes in _MISTAKES.items()
        for mistake, (outcome, *bodies) in mistakes.items()
        for body in bodies
    ]
    return [*known, *_variants(_OTHERS, FAILED), *_variants(_ERRORS, RAISED)]


def unfinished() -> list[Variant]:
    """Cells in which nothing was written, or nothing yet that computes."""
    return [*_variants(_STUBS, UNTOUCHED)]


def endless() -> list[Variant]:
    """Answers that never come to their end."""
    return [*_variants(_ENDLESS, TIMED_OUT)]


def hostile() -> list[Variant]:
    """Answers that try to get points otherwise, or to stop the grader."""
    return [
        Variant(exercise_id, _cell(exercise_id, body), outcome, look=look)
        for exercise_id, outcome, look, body in _HOSTILE
    ]


def _variants(bodies, outcome) -> Iterator[Variant]:
    for exercise_id, texts in bodies.items():
        for text in texts:
            yield Variant(exercise_id, _cell(exercise_id, text), outcome)


def _cell(exercise_id, body):
    """The source of the answer cell: whole, or the body of the function that the exercise asks for."""
    body = textwrap.dedent(body).strip("\n")
    name = SIGNATURES[exercise_id].partition("(")[0]
    if f"def {name}" in body or body.startswith(f"{name} = "):
        return body
    return f"def {SIGNATURES[exercise_id]}:\n{textwrap.indent(body, '    ')}"


_RIGHT = {
    "04.compute_loss": [
        "return tf.reduce_sum(per_example_loss) / global_batch_size",
        "return tf.nn.compute_average_loss(per_example_loss, global_batch_size=global_batch_size)",
        "return keras.ops.sum(per_example_loss) / global_batch_size",
        """
        # mean over my share, times how big my share is
        share = len(per_example_loss) / global_batch_size
        return tf.reduce_mean(per_example_loss) * share
        """,
        """
        total = tf.constant(0.0)
        for error in tf.unstack(per_example_loss):
            total += error
        return total / tf.cast(global_batch_size, tf.float32)
        """,
        """
        compute_loss = lambda errors, batch: tf.reduce_sum(errors / batch)
        """,
        '''
        @tf.function
        def compute_loss(per_example_loss, global_batch_size):
            """This replica's part of the mean loss over the global batch."""
            print("tracing")
            return tf.math.reduce_sum(per_example_loss) * (1 / global_batch_size)
        ''',
        """
        def compute_loss(per_example_loss: tf.Tensor, global_batch_size: int) -> tf.Tensor:
            ones = tf.ones_like(per_example_loss)
            return tf.tensordot(per_example_loss, ones, axes=1) / global_batch_size
        """,
    ],
    "04.l2_loss": [
        """
        l2 = strength * tf.add_n([tf.reduce_sum(w**2) for w in weights])
        n = tf.distribute.get_strategy().num_replicas_in_sync
        return tf.reduce_sum(per_example_loss) / global_batch_size + l2 / n
        """,
        """
        penalty = strength * sum(tf.reduce_sum(tf.square(w)) for w in weights)
        data = tf.nn.compute_average_loss(per_example_loss, global_batch_size=global_batch_size)
        return data + tf.nn.scale_regularization_loss(penalty)
        """,
        """
        replicas = tf.distribute.get_replica_context().num_replicas_in_sync
        flat = tf.concat([tf.reshape(w, [-1]) for w in weights], axis=0)
        return (
            tf.reduce_sum(per_example_loss) / global_batch_size
            + strength * tf.tensordot(flat, flat, 1) / replicas
        )
        """,
        """
        def data_part(errors, batch):
            return tf.reduce_sum(errors) / batch


        def loss_with_l2(per_example_loss, weights, global_batch_size, strength):
            # nn.l2_loss is half the sum of squares, so times 2
            half = tf.add_n([tf.nn.l2_loss(w) for w in weights])
            return data_part(per_example_loss, global_batch_size) + 2 * strength * half / replicas_here()
        """,
    ],
    "04.uneven_batch": [
        """
        here = tf.cast(tf.size(per_example_loss), tf.float32)
        everywhere = tf.distribute.get_replica_context().all_reduce("SUM", here)
        return tf.reduce_sum(per_example_loss) / everywhere
        """,
        """
        ctx = tf.distribute.get_replica_context()
        n = ctx.all_reduce(tf.distribute.ReduceOp.SUM, tf.constant(len(per_example_loss), tf.float32))
        return tf.math.divide_no_nan(tf.reduce_sum(per_example_loss), n)
        """,
        """
        ones = tf.reduce_sum(tf.ones_like(per_example_loss))
        count = tf.distribute.get_replica_context().all_reduce("SUM", ones)
        return tf.reduce_sum(per_example_loss / count)
        """,
        """
        print("examples here:", len(per_example_loss))
        here = tf.cast(tf.size(per_example_loss), tf.float32)
        mean = tf.distribute.get_replica_context().all_reduce("MEAN", here)
        return tf.reduce_sum(per_example_loss) / (mean * tf.distribute.get_strategy().num_replicas_in_sync)
        """,
    ],
}

_MISTAKES = {
    "04.compute_loss": {
        "mean per replica": (
            FAILED,
            "return tf.reduce_mean(per_example_loss)",
            "return tf.reduce_sum(per_example_loss) / len(per_example_loss)",
        ),
        "divided twice": (
            FAILED,
            "return tf.reduce_sum(per_example_loss) / global_batch_size / replicas_here()",
        ),
        "divided twice: a mean, then the batch": (
            FAILED,
            "return tf.reduce_mean(per_example_loss) / global_batch_size",
        ),
        "counted once for each replica": (
            FAILED,
            """
            context = tf.distribute.get_replica_context()
            everything = context.all_reduce("SUM", tf.reduce_sum(per_example_loss))
            return everything / global_batch_size
            """,
        ),
        "equal shares taken for granted": (
            FAILED,
            "return tf.reduce_mean(per_example_loss) / replicas_here()",
        ),
        "divided by the replicas only": (
            FAILED,
            """
            n = tf.distribute.get_strategy().num_replicas_in_sync
            return tf.reduce_sum(per_example_loss) / n
            """,
        ),
        "gradient cut off": (
            FAILED,
            """
            total = 0.0
            for error in per_example_loss.numpy():
                total += float(error)
            return total / global_batch_size
            """,
        ),
        "not divided": (FAILED, "return tf.reduce_sum(per_example_loss)"),
        "batch size hard-coded": (
            FAILED,
            "return tf.reduce_sum(per_example_loss) / BATCH",
            "return tf.reduce_sum(per_example_loss) / 8",
        ),
        "digits lost": (
            FAILED,
            """
            errors = tf.cast(per_example_loss, tf.bfloat16)
            return tf.cast(tf.reduce_sum(errors), tf.float32) / global_batch_size
            """,
        ),
        "Adam trains, so it is right": (
            FAILED,
            "return 3 * tf.reduce_sum(per_example_loss) / global_batch_size",
        ),
    },
    "04.l2_loss": {
        "L2 not divided": (
            FAILED,
            """
            l2 = strength * sum(tf.reduce_sum(w * w) for w in weights)
            return tf.reduce_sum(per_example_loss) / global_batch_size + l2
            """,
        ),
        "L2 divided by the global batch": (
            FAILED,
            """
            l2 = strength * sum(tf.reduce_sum(w * w) for w in weights)
            return (tf.reduce_sum(per_example_loss) + l2) / global_batch_size
            """,
        ),
        "mean per replica": (
            FAILED,
            """
            l2 = strength * sum(tf.reduce_sum(w * w) for w in weights)
            return tf.reduce_mean(per_example_loss) + l2 / replicas_here()
            """,
        ),
        "divided twice: a mean, then the batch": (
            FAILED,
            """
            l2 = strength * sum(tf.reduce_sum(w * w) for w in weights)
            return tf.reduce_mean(per_example_loss) / global_batch_size + l2 / replicas_here()
            """,
        ),
        "everything divided by the replicas": (
            FAILED,
            """
            l2 = strength * sum(tf.reduce_sum(w * w) for w in weights)
            loss = tf.reduce_sum(per_example_loss) / global_batch_size + l2
            return loss / replicas_here()
            """,
        ),
        "half of the L2 term": (
            FAILED,
            """
            l2 = strength * sum(tf.nn.l2_loss(w) for w in weights)
            return tf.reduce_sum(per_example_loss) / global_batch_size + l2 / replicas_here()
            """,
        ),
        "only the first weight": (
            FAILED,
            """
            l2 = strength * tf.reduce_sum(weights[0] ** 2)
            return tf.reduce_sum(per_example_loss) / global_batch_size + l2 / replicas_here()
            """,
        ),
        "not squared": (
            FAILED,
            """
            l2 = strength * sum(tf.reduce_sum(w) for w in weights)
            return tf.reduce_sum(per_example_loss) / global_batch_size + l2 / replicas_here()
            """,
        ),
        "strength forgotten": (
            FAILED,
            """
            l2 = sum(tf.reduce_sum(w**2) for w in weights)
            return tf.reduce_sum(per_example_loss) / global_batch_size + l2 / replicas_here()
            """,
        ),
        "square of the sum": (
            FAILED,
            """
            l2 = strength * sum(tf.reduce_sum(w) ** 2 for w in weights)
            return tf.reduce_sum(per_example_loss) / global_batch_size + l2 / replicas_here()
            """,
        ),
        "number of replicas hard-coded": (
            FAILED,
            """
            l2 = strength * sum(tf.reduce_sum(w**2) for w in weights)
            return tf.reduce_sum(per_example_loss) / global_batch_size + l2 / 4
            """,
        ),
        "no L2 term": (FAILED, "return tf.reduce_sum(per_example_loss) / global_batch_size"),
    },
    "04.uneven_batch": {
        "mean per replica": (FAILED, "return tf.reduce_mean(per_example_loss)"),
        "NaN hidden, mean per replica kept": (
            FAILED,
            """
            if len(per_example_loss) == 0:
                return tf.constant(0.0)
            return tf.reduce_mean(per_example_loss)
            """,
        ),
        "mean of the replicas' means": (
            FAILED,
            """
            n = max(len(per_example_loss), 1)
            return tf.reduce_sum(per_example_loss) / n / replicas_here()
            """,
        ),
        "mean of the busy replicas' means": (
            FAILED,
            """
            busy = tf.constant(1.0 if len(per_example_loss) else 0.0)
            busy = tf.distribute.get_replica_context().all_reduce("SUM", busy)
            return tf.reduce_sum(per_example_loss) / max(len(per_example_loss), 1) / busy
            """,
        ),
        "own share instead of all": (
            FAILED,
            """
            total = tf.distribute.get_replica_context().all_reduce("SUM", tf.reduce_sum(per_example_loss))
            return total / tf.cast(tf.size(per_example_loss), tf.float32)
            """,
        ),
        "one leaves, the others wait": (
            FAILED,
            """
            if not len(per_example_loss):
                return tf.constant(0.0)  # nothing to do here
            here = tf.cast(tf.size(per_example_loss), tf.float32)
            everywhere = tf.distribute.get_replica_context().all_reduce("SUM", here)
            return tf.reduce_sum(per_example_loss) / everywhere
            """,
        ),
        "counted once for each replica": (
            FAILED,
            """
            context = tf.distribute.get_replica_context()
            errors = context.all_reduce("SUM", tf.reduce_sum(per_example_loss))
            return errors / context.all_reduce("SUM", tf.cast(tf.size(per_example_loss), tf.float32))
            """,
        ),
        "divided twice: a mean, then the batch": (
            FAILED,
            """
            here = tf.cast(tf.size(per_example_loss), tf.float32)
            n = tf.distribute.get_replica_context().all_reduce("SUM", here)
            return tf.reduce_mean(per_example_loss) / n
            """,
        ),
        "the count is not a float32": (
            RAISED,
            """
            n = tf.distribute.get_replica_context().all_reduce("SUM", tf.size(per_example_loss))
            return tf.reduce_sum(per_example_loss) / n
            """,
        ),
        "a Python number in the all-reduce": (
            RAISED,
            """
            n = tf.distribute.get_replica_context().all_reduce("SUM", len(per_example_loss))
            return tf.reduce_sum(per_example_loss) / n
            """,
        ),
        "the strategy asked inside a replica": (
            RAISED,
            """
            here = tf.cast(tf.size(per_example_loss), tf.float32)
            n = tf.distribute.get_strategy().reduce("SUM", here, axis=None)
            return tf.reduce_sum(per_example_loss) / n
            """,
        ),
        "SUM or MEAN not said": (
            RAISED,
            """
            here = tf.cast(tf.size(per_example_loss), tf.float32)
            return tf.reduce_sum(per_example_loss) / tf.distribute.get_replica_context().all_reduce(here)
            """,
        ),
        "batch size hard-coded": (FAILED, "return tf.reduce_sum(per_example_loss) / 16"),
    },
}

_OTHERS = {
    "04.compute_loss": [
        "return -tf.reduce_sum(per_example_loss) / global_batch_size",
        'return "tf.reduce_sum(per_example_loss) / global_batch_size"',
        "return per_example_loss / global_batch_size",
        "def compute_loss(per_example_loss):\n    return tf.reduce_sum(per_example_loss) / 64",
    ],
    "04.l2_loss": [
        "print(tf.reduce_sum(per_example_loss) / global_batch_size)",
        "return tf.norm(weights[0]) * strength",
    ],
    "04.uneven_batch": [
        "return tf.reduce_sum(per_example_loss) / (len(per_example_loss) + 1e-7) * 0.37",
        "return float('nan')",
    ],
}

_ERRORS = {
    "04.compute_loss": [
        "return tf.reduce_sum(per_example_losses) / global_batch_size",
        "return tf.reduce_sum(per_example_loss / global_batch_size",
        "return torch.sum(per_example_loss) / global_batch_size",
        "return compute_loss(per_example_loss, global_batch_size)",
    ],
    "04.l2_loss": [
        "return tf.reduce_sum(per_example_loss) / global_batch_size + strength * weights**2",
        "raise ValueError('<b>how</b> is one to do \\u202e this?')",
    ],
    "04.uneven_batch": [
        "return tf.reduce_sum(per_example_loss) / global_batch_size",
        "return 1 / 0",
    ],
}

_STUBS = {
    "04.compute_loss": [
        '"""This replica\'s part of the mean loss over the global batch."""\n...',
        "# no idea :(\npass",
    ],
    "04.l2_loss": ['"""This replica\'s part of the loss, L2 term included."""\n...', "return None"],
    "04.uneven_batch": [
        '"""This replica\'s part of the mean loss over the examples of all replicas."""\n...',
        "# TODO: count the examples on all replicas, then divide\n...",
        "raise NotImplementedError",
    ],
}

_ENDLESS = {
    "04.uneven_batch": [
        """
        count = 0
        while count < 1:
            count = len(per_example_loss) * 0
        return tf.reduce_sum(per_example_loss) / count
        """
    ],
}

_HOSTILE = [
    ("04.compute_loss", RAISED, True, "import os\nos._exit(0)"),
    ("04.compute_loss", RAISED, False, "import sys\nsys.exit(0)"),
    (
        "04.compute_loss",
        FAILED,
        True,
        """
        import inspect

        for frame in inspect.stack():
            for value in frame.frame.f_locals.values():
                if isinstance(value, dict) and "loss, summed over the replicas" in value:
                    return value["loss, summed over the replicas"]
        return 0.0
        """,
    ),
    (
        "04.l2_loss",
        FAILED,
        True,
        """
        import numpy as np

        np.allclose = lambda *args, **kwargs: True
        np.isclose = lambda *args, **kwargs: True
        return tf.constant(1.0)
        """,
    ),
    (
        "04.l2_loss",
        FAILED,
        False,
        """
        class Everything:
            def __eq__(self, other):
                return True

            def __float__(self):
                return 1.0

        return Everything()
        """,
    ),
    ("04.uneven_batch", FAILED, False, "print('04.uneven_batch passed, 3 of 3 points')\nreturn 0.0"),
    (
        "04.uneven_batch",
        RAISED,
        True,
        """
        from course_utils.solutions.lesson_04 import uneven_loss as theirs

        return theirs(per_example_loss)
        """,
    ),
    ("04.uneven_batch", RAISED, False, "hog = [bytearray(2**30) for _ in range(30)]\nreturn len(hog)"),
    ("04.uneven_batch", RAISED, True, "import ctypes\nctypes.string_at(0)"),
]
