"""The exercises of lesson 04: a loss that gives the same training on any number of replicas.

Each answer runs on real replicas (MirroredStrategy), one training step by SGD, and is held against what one
device gives, computed in NumPy. One Adam step is shown beside it where it teaches how much Adam hides.
"""

import numpy as np

from course_utils.exercises import returned
from course_utils.exercises.model import Exercise, Mistake, lazy
from course_utils.exercises.replicas import quietly, strategy_of

tf = lazy("tensorflow")
keras = lazy("keras")

LOSS = "loss, summed over the replicas"
SGD = "weight after one SGD step"
ADAM = "weight after one Adam step"
KERNEL = "kernel after one SGD step"
BIAS = "bias after one SGD step"
LEARNING_RATE = 0.01


def shares_of(values, replicas):
    """The batch cut as a distributed dataset cuts it: ceil(B / replicas) each, so the last may get less "
    "or none."""
    size = -(-len(values) // replicas)
    return [values[i * size : (i + 1) * size] for i in range(replicas)]


def on_replicas(replicas, compute, *batch):
    """The list of what `compute(*share)` returns on each replica: a list of tensors, one list a replica."""
    strategy = strategy_of(replicas)
    cut = [shares_of(values, replicas) for values in batch]

    def share(context):
        return tuple(tf.constant(values[context.replica_id_in_sync_group]) for values in cut)

    # Not converted by AutoGraph: an error shall point at the learner's own line.
    plain = tf.autograph.experimental.do_not_convert(compute)
    try:
        with quietly():
            args = strategy.experimental_distribute_values_from_function(share)
            per_replica = strategy.run(plain, args=args)
    except RuntimeError as error:
        if "different number of replica_context().merge_call()" not in str(error):
            raise
        raise returned.Unusable("Not every replica came to the all-reduce: some left before it.") from error
    return list(zip(*(strategy.experimental_local_results(part) for part in per_replica), strict=True))


def summed(results):
    """What the all-reduce makes of the replicas' results: their sum, part by part, as arrays."""
    return [np.sum([part.numpy() for part in parts], axis=0) for parts in zip(*results, strict=True)]


def loss_and_gradients(loss_of, weights):
    """The loss as a number's tensor and its gradients; a gradient that NumPy cut off counts as zero."""
    with tf.GradientTape() as tape:
        for weight in weights:
            tape.watch(weight)
        loss = loss_of()
        value = tf.constant(returned.number(loss, "Your loss"), tf.float32)
    traced = [loss] if tf.is_tensor(loss) else []
    gradients = tape.gradient(traced, weights) if traced else [None] * len(weights)
    return [value, *(tf.zeros_like(w) if g is None else g for w, g in zip(weights, gradients, strict=True))]


def one_weight_step(answer_on_share, case):
    """What is seen of one training step of `weight * x`, from weight 0 towards `y`."""

    def compute(x, y):
        weight = tf.constant(0.0)
        return loss_and_gradients(lambda: answer_on_share((weight * x - y) ** 2), [weight])

    loss, gradient = summed(on_replicas(case["replicas"], compute, case["x"], case["y"]))
    return {LOSS: float(loss), SGD: float(-LEARNING_RATE * gradient), ADAM: adam_step(float(gradient))}


def one_weight_on_one_device(case):
    x, y = case["x"].astype(float), case["y"].astype(float)
    gradient = float(np.mean(-2 * x * y))
    return {LOSS: float(np.mean(y**2)), SGD: -LEARNING_RATE * gradient, ADAM: adam_step(gradient)}


def adam_step(gradient):
    """Adam's first step, from 0, rounded to what a curve would show: the gradient's size falls out."""
    return round(-LEARNING_RATE * gradient / (abs(gradient) + 1e-7), 5)


def one_weight_cases(sizes):
    """Cases with a random line to fit, for pairs of (replicas, examples)."""

    def cases(random):
        return [
            {
                "about": f"{count(replicas, 'replica')}, {count(examples, 'example')} in the global batch",
                "replicas": replicas,
                "examples": examples,
                "x": random.integers(1, 6, examples).astype(np.float32),
                "y": random.integers(2, 9, examples).astype(np.float32),
            }
            for replicas, examples in sizes
        ]

    return cases


def count(number, thing):
    return f"{number} {thing}{'s' * (number != 1)}"


def times(seen, expected, key=LOSS):
    """By which factor the answer's number is off: "4 times too much"."""
    factor = seen[key] / expected[key]
    return f"{max(factor, 1 / factor):.3g} times too {'much' if factor > 1 else 'little'}"


# --- compute_loss


def observe_compute_loss(answer, case):
    return one_weight_step(lambda errors: answer(errors, case["examples"]), case)


def is_hard_coded(cases, seen, expected):
    """The sum of all errors, divided by what was returned, is one and the same number for every batch."""
    divisors = [
        e[LOSS] * case["examples"] / s[LOSS] for case, s, e in zip(cases, seen, expected, strict=True)
    ]
    return np.allclose(divisors, divisors[0], rtol=1e-4)


def is_hidden_by_adam(cases, seen, expected):
    """The SGD step is off, but Adam's is right."""
    pairs = list(zip(seen, expected, strict=True))
    return all(s[ADAM] == e[ADAM] for s, e in pairs) and not all(np.isclose(s[SGD], e[SGD]) for s, e in pairs)


def is_nearly_right(cases, seen, expected):
    """Right to two or three digits, as numbers of 16 bits are."""
    pairs = list(zip(seen, expected, strict=True))
    return all(np.isclose(s[key], e[key], rtol=0.01) for s, e in pairs for key in (LOSS, SGD))


COMPUTE_LOSS = Exercise(
    id="04.compute_loss",
    title="A loss that survives any number of replicas",
    points=2,
    length="about 1 line",
    signature="compute_loss(per_example_loss, global_batch_size)",
    hints=[
        "The gradients of the replicas are added up. So what all replicas return, added up, has to be the "
        "mean over the global batch.",
        "With 8 examples on 2 replicas, this replica holds 4 of them. By how much does each of the 4 count "
        "in the mean over all 8?",
        "Add up the errors of this replica and divide once, by the size of the global batch.",
    ],
    cases=one_weight_cases([(1, 6), (2, 8), (4, 8), (4, 10)]),
    observe=observe_compute_loss,
    expected=one_weight_on_one_device,
    mistakes=[
        Mistake(
            "mean per replica",
            lambda errors, batch: tf.reduce_mean(errors),
            went_wrong=lambda case, seen, expected: (
                f"On {case['replicas']} replicas you get {seen[LOSS]:.4g} where one device gets "
                f"{expected[LOSS]:.4g}: {times(seen, expected)}. You probably took the mean over the "
                "replica's own examples. Each of these means already stands for a whole batch, and the sum "
                "over the replicas counts it once for each."
            ),
            try_this="Divide what this replica adds up by the size of the *global* batch. Try it by hand "
            "with two replicas above.",
        ),
        Mistake(
            "divided twice",
            lambda errors, batch: (
                tf.reduce_sum(errors) / batch / tf.distribute.get_strategy().num_replicas_in_sync
            ),
            went_wrong=lambda case, seen, expected: (
                f"On {case['replicas']} replicas you get {times(seen, expected)}. The global batch already "
                "counts the examples of all replicas; dividing by the number of replicas as well makes the "
                "gradient, and so the learning rate, that much smaller."
            ),
            try_this="Leave one of the two divisions out. Which one is right for a last batch that is "
            "shorter?",
            variants=[lambda errors, batch: tf.nn.compute_average_loss(errors) / replicas_here()],
        ),
        Mistake(
            "divided twice: a mean, then the batch",
            lambda errors, batch: tf.reduce_mean(errors) / batch,
            went_wrong=lambda case, seen, expected: (
                f"You get {times(seen, expected)}: a mean has already divided by a number of examples, and "
                "you divide by the global batch on top. (`tf.reduce_mean` takes a mean, and so do "
                "`tf.nn.compute_average_loss` and the losses of Keras with their default reduction.)"
            ),
            try_this="Take the sum, not the mean, and divide once.",
            variants=[
                lambda errors, batch: keras.losses.MeanAbsoluteError()(tf.zeros_like(errors), errors) / batch,
                lambda errors, batch: tf.nn.compute_average_loss(errors) / batch,
                lambda errors, batch: tf.nn.compute_average_loss(errors, global_batch_size=batch) / batch,
            ],
        ),
        Mistake(
            "counted once for each replica",
            lambda errors, batch: over_all("SUM", tf.reduce_sum(errors)) / batch,
            went_wrong=lambda case, seen, expected: (
                f"On {case['replicas']} replicas you get {times(seen, expected)}. You probably added up the "
                "errors of all replicas yourself, with an all-reduce: then each replica returns the loss of "
                f"the *whole* batch, and the sum over the {case['replicas']} replicas counts it "
                f"{case['replicas']} times."
            ),
            try_this="Return this replica's part only: its own errors, over the global batch. The sum over "
            "the replicas comes by itself.",
            variants=[
                lambda errors, batch: over_all("SUM", tf.reduce_sum(errors) / batch),
                lambda errors, batch: tf.reduce_sum(errors) / batch * replicas_here(),
            ],
        ),
        Mistake(
            "equal shares taken for granted",
            lambda errors, batch: tf.reduce_mean(errors) / tf.distribute.get_strategy().num_replicas_in_sync,
            went_wrong=lambda case, seen, expected: (
                "The mean of the means is the mean only when every replica holds equally many examples. "
                f"Here {case['examples']} examples are cut into "
                f"{[len(s) for s in shares_of(case['x'], case['replicas'])]}, and the examples of the short "
                "share count for more than the others."
            ),
            try_this="Let each example count 1 / global batch, wherever it lies.",
        ),
        Mistake(
            "divided by the replicas only",
            lambda errors, batch: tf.reduce_sum(errors) / tf.distribute.get_strategy().num_replicas_in_sync,
            went_wrong=lambda case, seen, expected: (
                f"You get {times(seen, expected)}. You divided the sum of the errors by the number of "
                "replicas; a mean over examples divides by the number of examples."
            ),
            try_this="Divide by the size of the global batch instead.",
        ),
        Mistake(
            "gradient cut off",
            lambda errors, batch: float(np.sum(errors)) / batch,
            went_wrong="The loss is right, yet the weight does not move: there is no gradient. NumPy or "
            "`float` turned the tensor into a plain number, and the tape cannot follow a plain number back "
            "to the weight.",
            try_this="Stay with TensorFlow from the errors to the loss: `tf.reduce_sum` and `/`.",
            variants=[
                lambda errors, batch: np.sum(errors.numpy()) / np.float32(batch),
                lambda errors, batch: tf.stop_gradient(tf.reduce_sum(errors)) / batch,
            ],
        ),
        Mistake(
            "not divided",
            lambda errors, batch: tf.reduce_sum(errors),
            went_wrong=lambda case, seen, expected: (
                f"You get {seen[LOSS]:.4g} where one device gets {expected[LOSS]:.4g}: "
                f"{times(seen, expected)}, for {case['examples']} examples. A sum grows with the batch, and "
                "the learning rate with it."
            ),
            try_this="Divide the sum by the size of the global batch.",
        ),
        Mistake(
            "batch size hard-coded",
            lambda errors, batch: tf.reduce_sum(errors) / 8,
            went_wrong=lambda case, seen, expected: (
                f"You divide by {expected[LOSS] * case['examples'] / seen[LOSS]:.4g} whatever the batch is; "
                f"this one has {case['examples']} examples. The number fits until somebody changes the batch "
                "size."
            ),
            try_this="Use the argument `global_batch_size`.",
            variants=[
                lambda errors, batch: tf.reduce_sum(errors) / 64,
                lambda errors, batch: tf.reduce_sum(errors) * 0.1,
            ],
            recognises=is_hard_coded,
        ),
        Mistake(
            "digits lost",
            lambda errors, batch: tf.reduce_sum(tf.cast(errors, tf.float16)) / batch,
            went_wrong=lambda case, seen, expected: (
                f"You get {seen[LOSS]:.7g} where one device gets {expected[LOSS]:.7g}: the right idea, with "
                "too few digits. Numbers of 16 bits have three or fewer, and lose more with each addition."
            ),
            try_this="Add up in float32: leave the casts out.",
            variants=[
                lambda errors, batch: tf.cast(tf.reduce_sum(errors) / batch, tf.bfloat16),
                lambda errors, batch: tf.reduce_sum(errors) / batch * 1.0005,
            ],
            recognises=is_nearly_right,
        ),
        Mistake(
            "Adam trains, so it is right",
            lambda errors, batch: tf.reduce_sum(errors) * 2 / batch,
            went_wrong=lambda case, seen, expected: (
                f"The loss and the SGD step are {times(seen, expected)}, and yet the Adam step is the right "
                "one. Adam divides each gradient by its own size, so a wrong scale does not show: that it "
                "trains with Adam proves nothing about the loss."
            ),
            try_this="Compare with one device, on SGD. What has to be true of the sum over the replicas?",
            variants=[lambda errors, batch: tf.reduce_sum(errors) / batch**0.5],
            recognises=is_hidden_by_adam,
        ),
    ],
    also_right=[
        lambda errors, batch: tf.nn.compute_average_loss(errors, global_batch_size=batch),
        lambda errors, batch: tf.reduce_mean(errors) * (len(errors) / batch),
        lambda errors, batch: sum(tf.unstack(errors / tf.cast(batch, errors.dtype))),
    ],
)


# --- loss_with_l2


def l2_cases(random):
    return [
        {
            "about": f"{count(replicas, 'replica')}, {examples} examples in the global batch, strength "
            f"{strength:g}",
            "replicas": replicas,
            "examples": examples,
            "strength": strength,
            "x": random.integers(1, 5, (examples, 2)).astype(np.float32),
            "y": random.integers(4, 9, examples).astype(np.float32),
            "kernel": random.uniform(1, 2, 2).round(1).astype(np.float32),
            "bias": np.float32(random.uniform(-2, -1).__round__(1)),
        }
        for replicas, examples, strength in ((1, 6, 0.1), (2, 6, 0.1), (4, 8, 0.5))
    ]


def observe_l2(answer, case):
    def compute(x, y):
        kernel, bias = tf.constant(case["kernel"]), tf.constant(case["bias"])

        def loss():
            errors = (tf.linalg.matvec(x, kernel) + bias - y) ** 2
            return answer(errors, [kernel, bias], case["examples"], case["strength"])

        return loss_and_gradients(loss, [kernel, bias])

    loss, kernel, bias = summed(on_replicas(case["replicas"], compute, case["x"], case["y"]))
    return l2_facts(case, loss, kernel, bias)


def l2_on_one_device(case):
    x, y, kernel, bias = (np.asarray(case[key], float) for key in ("x", "y", "kernel", "bias"))
    errors, strength = x @ kernel + bias - y, case["strength"]
    loss = np.mean(errors**2) + strength * (np.sum(kernel**2) + bias**2)
    return l2_facts(
        case, loss, 2 * errors @ x / len(y) + 2 * strength * kernel, 2 * np.mean(errors) + 2 * strength * bias
    )


def l2_facts(case, loss, kernel_gradient, bias_gradient):
    return {
        LOSS: float(loss),
        KERNEL: case["kernel"] - LEARNING_RATE * np.asarray(kernel_gradient),
        BIAS: float(case["bias"] - LEARNING_RATE * bias_gradient),
    }


def squares(weights):
    return tf.add_n([tf.reduce_sum(weight**2) for weight in weights])


def squared_sums(weights):
    return tf.add_n([tf.reduce_sum(weight) ** 2 for weight in weights])


def fixed_divisors(cases, seen, expected):
    """By what the L2 term was divided on each case, told from the loss; the divisor that is right is N."""
    for case, one, right in zip(cases, seen, expected, strict=True):
        whole = case["strength"] * float(np.sum(case["kernel"] ** 2) + case["bias"] ** 2)
        yield whole * case["replicas"] / (one[LOSS] - right[LOSS] + whole)


def is_divided_by_a_fixed_number(cases, seen, expected):
    """One divisor of the L2 term on any number of replicas, in the loss and in the bias's step alike."""
    divisors = np.array([*fixed_divisors(cases, seen, expected)])
    steps = np.array([right[BIAS] - one[BIAS] for one, right in zip(seen, expected, strict=True)])
    pulls = np.array([2 * LEARNING_RATE * case["strength"] * case["bias"] for case in cases])
    times_too_often = np.array([case["replicas"] for case in cases]) / divisors - 1
    return (
        1.5 < divisors[0] < 100
        and np.allclose(divisors, divisors[0], rtol=1e-2)
        and np.allclose(steps, pulls * times_too_often, atol=1e-5)
    )


def mean_loss(errors, batch):
    return tf.reduce_sum(errors) / batch


def replicas_here():
    return tf.distribute.get_strategy().num_replicas_in_sync


L2_LOSS = Exercise(
    id="04.l2_loss",
    title="Add an L2 term",
    points=2,
    length="about 3 lines",
    signature="loss_with_l2(per_example_loss, weights, global_batch_size, strength)",
    hints=[
        "Each replica returns a loss, and the losses are added up. Which part of yours is there once for "
        "each *example*, and which once for each *replica*?",
        "Every replica holds the same weights, so each of them would add the whole L2 term. How many times "
        "would it be counted?",
        "`tf.distribute.get_strategy().num_replicas_in_sync` is the number of replicas (inside "
        "`strategy.run` too). `tf.nn.scale_regularization_loss` divides by it.",
    ],
    cases=l2_cases,
    observe=observe_l2,
    expected=l2_on_one_device,
    mistakes=[
        Mistake(
            "L2 not divided",
            lambda errors, weights, batch, strength: mean_loss(errors, batch) + strength * squares(weights),
            went_wrong=lambda case, seen, expected: (
                f"The loss of the examples is right, but the L2 term is there {case['replicas']} times: each "
                f"of the {case['replicas']} replicas adds it in full. The weights are pulled towards zero "
                f"{case['replicas']} times as hard as you asked for."
            ),
            try_this="Let each replica add its part of the L2 term: divide it by the number of replicas.",
        ),
        Mistake(
            "L2 divided by the global batch",
            lambda errors, weights, batch, strength: (
                (tf.reduce_sum(errors) + strength * squares(weights)) / batch
            ),
            went_wrong=lambda case, seen, expected: (
                f"The L2 term is {case['examples'] / case['replicas']:.3g} times too small: it was divided "
                f"by the {case['examples']} examples of the global batch. It does not belong to an example: "
                "it is there once for each replica."
            ),
            try_this="Divide the errors by the global batch, and the L2 term by the number of replicas.",
        ),
        Mistake(
            "mean per replica",
            lambda errors, weights, batch, strength: (
                tf.reduce_mean(errors) + strength * squares(weights) / replicas_here()
            ),
            went_wrong="The L2 term is right; the loss of the examples is the mean over the replica's own "
            "examples, and the sum over the replicas counts it once for each.",
            try_this="Put your `compute_loss` here for the first part.",
            variants=[
                lambda errors, weights, batch, strength: tf.reduce_mean(errors) + strength * squares(weights)
            ],
        ),
        Mistake(
            "divided twice: a mean, then the batch",
            lambda errors, weights, batch, strength: (
                tf.reduce_mean(errors) / batch + strength * squares(weights) / replicas_here()
            ),
            went_wrong="The loss of the examples is too small: a mean has already divided by a number of "
            "examples, and you divide by the global batch on top. (`tf.reduce_mean` takes a mean, and so do "
            "the losses of Keras with their default reduction.)",
            try_this="Put your `compute_loss` here for the first part.",
            variants=[
                lambda errors, weights, batch, strength: (
                    tf.reduce_mean(errors) / batch + strength * squares(weights)
                )
            ],
        ),
        Mistake(
            "everything divided by the replicas",
            lambda errors, weights, batch, strength: (
                (mean_loss(errors, batch) + strength * squares(weights)) / replicas_here()
            ),
            went_wrong=lambda case, seen, expected: (
                f"The whole loss is {times(seen, expected)}. The L2 term is right now, but the errors were "
                "already divided by the global batch, which counts all replicas."
            ),
            try_this="Divide the L2 term alone by the number of replicas.",
        ),
        Mistake(
            "half of the L2 term",
            lambda errors, weights, batch, strength: (
                mean_loss(errors, batch)
                + strength * tf.add_n([tf.nn.l2_loss(weight) for weight in weights]) / replicas_here()
            ),
            went_wrong="The L2 term is half of what it should be. `tf.nn.l2_loss` gives half the sum of the "
            "squares; here the term is strength × sum of the squares, as in `keras.regularizers.L2`.",
            try_this="Use `tf.reduce_sum(weight ** 2)`.",
        ),
        Mistake(
            "only the first weight",
            lambda errors, weights, batch, strength: (
                mean_loss(errors, batch) + strength * tf.reduce_sum(weights[0] ** 2) / replicas_here()
            ),
            went_wrong="The kernel is treated rightly, the bias is left out: `weights` is a list, and only "
            "its first entry was used.",
            try_this="Add up the squares of all entries of `weights`.",
        ),
        Mistake(
            "not squared",
            lambda errors, weights, batch, strength: (
                mean_loss(errors, batch)
                + strength * tf.add_n([tf.reduce_sum(weight) for weight in weights]) / replicas_here()
            ),
            went_wrong="The L2 term adds up the weights themselves, not their squares: a negative weight "
            "then makes the loss smaller, and is pushed further from zero.",
            try_this="Square each weight before adding up.",
        ),
        Mistake(
            "strength forgotten",
            lambda errors, weights, batch, strength: (
                mean_loss(errors, batch) + squares(weights) / replicas_here()
            ),
            went_wrong=lambda case, seen, expected: (
                f"`strength` is not used: it is {case['strength']:g} here, and your L2 term is added as if "
                "it were 1."
            ),
            try_this="The term is strength × the sum of all squared weights.",
            variants=[
                lambda errors, weights, batch, strength: mean_loss(errors, batch) + squares(weights),
            ],
        ),
        Mistake(
            "square of the sum",
            lambda errors, weights, batch, strength: (
                mean_loss(errors, batch) + strength * squared_sums(weights) / replicas_here()
            ),
            went_wrong=lambda case, seen, expected: (
                "You added up the weights and squared the sum. L2 is the sum of the squares: for 3 and -3 "
                "that is 18, and the square of their sum is 0."
            ),
            try_this="First square, then add up: `tf.reduce_sum(weight ** 2)`.",
            variants=[
                lambda errors, weights, batch, strength: (
                    mean_loss(errors, batch) + strength * squared_sums(weights)
                ),
                lambda errors, weights, batch, strength: (
                    mean_loss(errors, batch)
                    + strength
                    * tf.add_n([tf.reduce_sum(weight) for weight in weights]) ** 2
                    / replicas_here()
                ),
                lambda errors, weights, batch, strength: (
                    mean_loss(errors, batch)
                    + strength * tf.add_n([tf.reduce_sum(weight) for weight in weights]) ** 2
                ),
            ],
        ),
        Mistake(
            "number of replicas hard-coded",
            lambda errors, weights, batch, strength: (
                mean_loss(errors, batch) + strength * squares(weights) / 4
            ),
            went_wrong=lambda case, seen, expected: (
                f"You divide the L2 term by {next(fixed_divisors([case], [seen], [expected])):.3g} however "
                f"many replicas there are; here there {'is' if case['replicas'] == 1 else 'are'} "
                f"{case['replicas']}. The number fits until the script runs on another machine."
            ),
            try_this="Ask for the number: `tf.distribute.get_strategy().num_replicas_in_sync`.",
            variants=[
                lambda errors, weights, batch, strength: (
                    mean_loss(errors, batch) + strength * squares(weights) / 2
                ),
                lambda errors, weights, batch, strength: (
                    mean_loss(errors, batch) + strength * squares(weights) / 8
                ),
            ],
            recognises=is_divided_by_a_fixed_number,
        ),
        Mistake(
            "no L2 term",
            lambda errors, weights, batch, strength: mean_loss(errors, batch),
            went_wrong="This is the loss of the examples alone: the L2 term is missing.",
            try_this="Add strength × the sum of all squared weights, each replica its part.",
        ),
    ],
    also_right=[
        lambda errors, weights, batch, strength: (
            tf.nn.compute_average_loss(errors, global_batch_size=batch)
            + tf.nn.scale_regularization_loss(strength * squares(weights))
        ),
        # Given to each example, the term is divided together with the examples.
        lambda errors, weights, batch, strength: tf.reduce_sum(errors + strength * squares(weights)) / batch,
    ],
)


# --- uneven_loss


def observe_uneven(answer, case):
    seen = one_weight_step(answer, case)
    return {key: seen[key] for key in (LOSS, SGD)}


def uneven_on_one_device(case):
    expected = one_weight_on_one_device(case)
    return {key: expected[key] for key in (LOSS, SGD)}


def examples_here(errors):
    return tf.cast(tf.size(errors), tf.float32)


def leaves_early(errors):
    if len(errors) == 0:
        return tf.constant(0.0)
    return tf.reduce_sum(errors) / over_all("SUM", examples_here(errors))


def over_all(how, value):
    return tf.distribute.get_replica_context().all_reduce(how, value)


def about_nan(case, seen):
    """What a NaN in the loss comes from; nothing where there is none."""
    if not np.isnan(seen[LOSS]):
        return ""
    return (
        f" The examples lie as {cut(case)}: on a replica without any, the mean is 0 / 0, which is NaN, and "
        "so is the sum. The weights go on, only wrong: nothing has no gradient."
    )


def over_count_of(count_here):
    """A wrong answer that divides by the all-reduce of what `count_here(errors)` gives."""
    return lambda errors: tf.reduce_sum(errors) / over_all("SUM", count_here(errors))


def over_result_of(method, *how, **more):
    """A wrong answer that asks the strategy, which answers only outside the replicas."""

    def uneven_loss(errors):
        ask = getattr(tf.distribute.get_strategy(), method)
        return tf.reduce_sum(errors) / ask(*how, examples_here(errors), **more)

    return uneven_loss


def cut(case):
    """How the batch lies on the replicas, in words: "2 + 2 + 1 + 0"."""
    return " + ".join(str(len(share)) for share in shares_of(case["x"], case["replicas"]))


UNEVEN_BATCH = Exercise(
    id="04.uneven_batch",
    title="Survive the last short batch",
    points=3,
    length="about 3 lines",
    signature="uneven_loss(per_example_loss)",
    hints=[
        "The size that you asked for is no longer the size that you got, and this replica sees only its own "
        "share. Who knows how many examples there are in all?",
        "Lesson 03: an all-reduce gives every replica the sum of what each of them holds. What must each "
        "hold?",
        '`tf.distribute.get_replica_context().all_reduce("SUM", …)` of the number of examples here, as a '
        "float.",
        "`tf.reduce_sum` over no examples is 0; `tf.reduce_mean` over none is NaN.",
    ],
    cases=one_weight_cases([(1, 3), (4, 8), (2, 3), (4, 5)]),
    observe=observe_uneven,
    expected=uneven_on_one_device,
    mistakes=[
        Mistake(
            "mean per replica",
            lambda errors: tf.reduce_mean(errors),
            went_wrong=lambda case, seen, expected: (
                "Each replica took the mean over its own examples, so the sum over the replicas counts one "
                f"mean for each.{about_nan(case, seen)}"
            ),
            try_this="Divide the sum by the number of examples on *all* replicas.",
            variants=[lambda errors: tf.reduce_sum(errors) / examples_here(errors)],
        ),
        Mistake(
            "NaN hidden, mean per replica kept",
            lambda errors: tf.math.divide_no_nan(tf.reduce_sum(errors), examples_here(errors)),
            went_wrong=lambda case, seen, expected: (
                f"No NaN any more, but the examples lie as {cut(case)} on the replicas and each replica "
                f"still divides by its own share: {times(seen, expected)}."
            ),
            try_this="Divide by the number of examples on *all* replicas: then nothing is left to hide.",
            variants=[
                lambda errors: tf.reduce_sum(errors) / tf.maximum(examples_here(errors), 1.0),
                lambda errors: tf.reduce_mean(errors) if len(errors) else tf.constant(0.0),
            ],
        ),
        Mistake(
            "mean of the replicas' means",
            lambda errors: (
                tf.math.divide_no_nan(tf.reduce_sum(errors), examples_here(errors)) / replicas_here()
            ),
            went_wrong=lambda case, seen, expected: (
                f"The examples lie as {cut(case)} on the replicas. Each replica counts the same in a mean of "
                "means, so an example in a short share weighs more than the others, and an empty share "
                "counts as a loss of 0."
            ),
            try_this="Each example should weigh the same: divide by how many there are on all replicas "
            "together.",
            variants=[
                lambda errors: (
                    tf.reduce_sum(errors) / (tf.maximum(examples_here(errors), 1.0) * replicas_here())
                )
            ],
        ),
        Mistake(
            "mean of the busy replicas' means",
            lambda errors: (
                tf.math.divide_no_nan(tf.reduce_sum(errors), examples_here(errors))
                / over_all("SUM", tf.cast(tf.size(errors) > 0, tf.float32))
            ),
            went_wrong=lambda case, seen, expected: (
                "Replicas without examples are left out, which is right; but the others count the same "
                f"each, and the examples lie as {cut(case)}."
            ),
            try_this="Add up how many examples there are, not how many replicas have some.",
        ),
        Mistake(
            "own share instead of all",
            lambda errors: over_all("SUM", tf.reduce_sum(errors)) / examples_here(errors),
            went_wrong="The errors of all replicas are divided by the examples of one. Both have to be of "
            "the same set.",
            try_this="It is the *number of examples* that has to be added up over the replicas.",
        ),
        Mistake(
            "one leaves, the others wait",
            leaves_early,
            went_wrong="A replica without examples returned before the all-reduce. The others wait in it "
            "for ever: a dead-lock. (Here TensorFlow noticed, because all replicas are in one process.) A "
            "collective must be entered by all.",
            try_this="Let a replica without examples bring its 0 like everyone else. After the sum, no "
            "divisor is 0.",
        ),
        Mistake(
            "counted once for each replica",
            lambda errors: over_all("SUM", tf.reduce_sum(errors)) / over_all("SUM", examples_here(errors)),
            went_wrong=lambda case, seen, expected: (
                f"The result is {times(seen, expected)}, once for each of the {case['replicas']} replicas. "
                "Either every replica returns the mean over the whole batch, and these means are added up "
                "once more; or you divided by the MEAN of the counts, which is what one replica holds on "
                "average."
            ),
            try_this="Return only this replica's part: its own errors, over the SUM of all counts.",
            variants=[lambda errors: tf.reduce_sum(errors) / over_all("MEAN", examples_here(errors))],
        ),
        Mistake(
            "divided twice: a mean, then the batch",
            lambda errors: tf.reduce_mean(errors) / over_all("SUM", examples_here(errors)),
            went_wrong=lambda case, seen, expected: (
                "A mean has already divided by this replica's examples, and you divide by the examples of "
                f"all replicas on top.{about_nan(case, seen)}"
            ),
            try_this="Take the sum of this replica's errors, not their mean, and divide once.",
            variants=[
                lambda errors: (
                    tf.math.divide_no_nan(tf.reduce_sum(errors), examples_here(errors))
                    / over_all("SUM", examples_here(errors))
                ),
                lambda errors: (
                    tf.reduce_sum(errors) / over_all("SUM", examples_here(errors)) / replicas_here()
                ),
            ],
        ),
        Mistake(
            "the count is not a float32",
            over_count_of(lambda errors: tf.size(errors)),
            went_wrong="The count of the examples has another type than the errors: `tf.size` and `len` "
            "count in integers, the errors are float32, and TensorFlow does not mix types by itself.",
            try_this="Cast the count before the all-reduce: "
            "`tf.cast(tf.size(per_example_loss), tf.float32)`.",
            variants=[
                over_count_of(lambda errors: tf.size(errors, out_type=tf.int64)),
                over_count_of(lambda errors: tf.cast(tf.size(errors), tf.float64)),
                lambda errors: tf.reduce_sum(errors) * (1 / over_all("SUM", tf.size(errors))),
            ],
        ),
        Mistake(
            "a Python number in the all-reduce",
            over_count_of(len),
            went_wrong="`len` gives a number of Python's own. An all-reduce sends tensors between devices, "
            "and wants to know their type (`dtype`), which a plain number has not.",
            try_this="Make it a tensor first: `tf.cast(tf.size(per_example_loss), tf.float32)`, or "
            "`tf.constant(len(per_example_loss), tf.float32)`.",
            variants=[
                over_count_of(lambda errors: float(len(errors))),
                over_count_of(lambda errors: np.float32(len(errors))),
            ],
        ),
        Mistake(
            "the strategy asked inside a replica",
            over_result_of("reduce", "SUM", axis=None),
            went_wrong="`strategy.reduce` (as `gather` and `run`) belongs outside: it takes what all "
            "replicas have returned, after `strategy.run`. Your function runs *inside*, once on each "
            "replica, and sees only its own share.",
            try_this='Inside a replica: `tf.distribute.get_replica_context().all_reduce("SUM", …)`.',
            variants=[
                over_result_of("gather", axis=0),
                over_result_of("all_reduce", "SUM"),
            ],
        ),
        Mistake(
            "SUM or MEAN not said",
            lambda errors: (
                tf.reduce_sum(errors) / tf.distribute.get_replica_context().all_reduce(examples_here(errors))
            ),
            went_wrong="`all_reduce` takes two things: how to reduce, and then what. One of them is missing.",
            try_this='`tf.distribute.get_replica_context().all_reduce("SUM", …)`, with the count for `…`.',
        ),
        Mistake(
            "batch size hard-coded",
            lambda errors: tf.reduce_sum(errors) / 8,
            went_wrong=lambda case, seen, expected: (
                f"You divide by {expected[LOSS] * case['examples'] / seen[LOSS]:.4g}; this last batch has "
                f"only {case['examples']} examples, so each of them counts for too little or too much."
            ),
            try_this="Count what is really there: add the shares' lengths up over the replicas.",
            variants=[lambda errors: tf.reduce_sum(errors) / 64, lambda errors: tf.reduce_sum(errors)],
            recognises=is_hard_coded,
        ),
    ],
    also_right=[
        lambda errors: tf.math.divide_no_nan(tf.reduce_sum(errors), over_all("SUM", examples_here(errors))),
        lambda errors: tf.reduce_sum(errors / over_all("SUM", examples_here(errors))),
        lambda errors: tf.reduce_sum(errors) / (over_all("MEAN", examples_here(errors)) * replicas_here()),
    ],
)

EXERCISES = [COMPUTE_LOSS, L2_LOSS, UNEVEN_BATCH]
