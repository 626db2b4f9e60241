"""The exercises of lesson 06: a learning rate for a large batch, a large batch from parts, and when to stop.

Updates run on real replicas and are held against one device, worked out in NumPy.
"""

import functools
import itertools
import math
import threading
import weakref

import numpy as np

from course_utils.exercises import returned
from course_utils.exercises.model import Exercise, Mistake, lazy
from course_utils.exercises.replicas import quietly

tf = lazy("tensorflow")
keras = lazy("keras")
devices = lazy("course_utils.devices")
schedules = lazy("course_utils.schedules")


# --- 06.learning_rate: warm-up and cosine for the batch of all replicas --------------------------------

FIRST, RISING, PEAK = "first update, step 0", "half of the warm-up", "end of the warm-up"
NEXT, MIDDLE, LAST = "one step later", "half of the cosine", "last update"
END, BEYOND = "at total_steps", "10 steps later"
TAKEN = "LearningRateScheduler"
ACCEPTS, TENSOR, WHOLE = "accepts it", "refuses a tensor or an array", "refuses a whole number"


def rate_cases(random):
    """Rates large enough that a slip shows: a peak of 0.2 to 3."""
    shapes = (int(random.integers(2, 5)) * 2, 40), (int(random.integers(5, 9)) * 2, 64), (0, 20)
    return [
        {
            "about": f"{replicas} replicas of {per_replica} examples, warm-up {warmup} of {total} steps",
            "base_rate": float(random.choice([0.1, 0.2, 0.3])),
            "per_replica": per_replica,
            "replicas": replicas,
            "warmup_steps": warmup,
            "total_steps": total,
        }
        for (warmup, total), (replicas, per_replica) in zip(
            shapes, ((4, 128), (16, 96), (8, 64)), strict=True
        )
    ]


def moments(case):
    """The steps that are looked at, by what they are."""
    warmup, total = case["warmup_steps"], case["total_steps"]
    rising = {FIRST: 0, RISING: warmup // 2} if warmup else {}
    falling = {PEAK: warmup, NEXT: warmup + 1, MIDDLE: (warmup + total) // 2, LAST: total - 1}
    return {**rising, **falling, END: total, BEYOND: total + 10}


def observe_rate(answer, case):
    names = ("base_rate", "per_replica", "replicas", "warmup_steps", "total_steps")
    others = [case[name] for name in names]  # by place: a learner may have named them otherwise
    rates = {name: answer(step, *others) for name, step in moments(case).items()}
    seen = {name: float(returned.number(rate, "learning_rate")) for name, rate in rates.items()}
    return {**seen, TAKEN: how_taken(rates.values())}


def how_taken(rates):
    """What Keras' callback makes of them: it wants a float, Python's or NumPy's."""
    refused = [rate for rate in rates if not isinstance(rate, float | np.float32 | np.float64)]
    if not refused:
        return ACCEPTS
    return WHOLE if any(isinstance(rate, int | np.integer) for rate in refused) else TENSOR


def expected_rate(case):
    """By hand, in complex numbers: half the cosine is a half turn."""
    peak = case["base_rate"] * (case["per_replica"] * case["replicas"] / 256)
    warmup, total = case["warmup_steps"], case["total_steps"]
    rates = {}
    for name, step in moments(case).items():
        turn = min(max(step - warmup, 0) / (total - warmup), 1)
        rates[name] = peak * (step / warmup if step < warmup else (1 + (complex(-1) ** turn).real) / 2)
    return {**rates, TAKEN: ACCEPTS}


def a_rate(
    peak=lambda base, per_replica, replicas: base * per_replica * replicas / 256,
    rise=lambda step, warmup, total: step / warmup,
    done=lambda step, warmup, total: (step - warmup) / (total - warmup),
    fall=lambda done: 0.5 * (1 + math.cos(math.pi * min(done, 1))),
    rises=lambda step, warmup: step < warmup,
    as_kind=float,
    start=lambda base: 0.0,
):
    """A learning_rate that may differ from the right one in one place."""

    def learning_rate(step, base_rate, per_replica, replicas, warmup_steps, total_steps):
        top, bottom = peak(base_rate, per_replica, replicas), start(base_rate)
        if rises(step, warmup_steps):
            return as_kind(bottom + (top - bottom) * rise(step, warmup_steps, total_steps))
        return as_kind(top * fall(done(step, warmup_steps, total_steps)))

    return learning_rate


def of_keras(step, base_rate, per_replica, replicas, warmup_steps, total_steps):
    peak = base_rate * per_replica * replicas / 256
    if not warmup_steps:
        return keras.optimizers.schedules.CosineDecay(peak, total_steps)(step)
    warm = {"warmup_target": peak, "warmup_steps": warmup_steps}
    return keras.optimizers.schedules.CosineDecay(0.0, total_steps - warmup_steps, **warm)(step)


def of_the_course(step, base_rate, per_replica, replicas, warmup_steps, total_steps):
    peak = schedules.linear_scaling(base_rate, per_replica * replicas)
    return schedules.WarmupCosine(peak, warmup_steps, total_steps)(step)


def of_numpy(step, base_rate, per_replica, replicas, warmup_steps, total_steps):
    knots = (
        np.interp(step, [0, warmup_steps, total_steps], [0, 1, 2])
        if warmup_steps
        else 1 + min(step / total_steps, 1)
    )
    shape = knots if knots < 1 else np.cos((knots - 1) * np.pi / 2) ** 2
    return np.float32(base_rate * shape * replicas / 256 * per_replica)


def ends_at_total_steps(step, base_rate, per_replica, replicas, warmup_steps, total_steps):
    """A cosine that is too long, and cut off where it should have ended."""
    if step >= total_steps:
        return 0.0
    too_long = a_rate(done=lambda step, warmup, total: (step - warmup) / total)
    return too_long(step, base_rate, per_replica, replicas, warmup_steps, total_steps)


def factor(case):
    return case["per_replica"] * case["replicas"] / 256


LEARNING_RATE = Exercise(
    id="06.learning_rate",
    title="A learning rate for each update",
    points=3,
    length="about 6 lines",
    signature="learning_rate(step, base_rate, per_replica, replicas, warmup_steps, total_steps)",
    hints=[
        "How many examples does one update see? That over 256, times `base_rate`, is the peak.",
        "During the warm-up, step k has k / warmup_steps of the peak. Which step is the first that has all "
        "of it? From there on, count the cosine from 0.",
        "`0.5 * (1 + math.cos(math.pi * done))` falls from 1 to 0 while `done` goes from 0 to 1. `done` "
        "counts from the end of the warm-up, and must not go beyond 1.",
    ],
    tolerance=1e-3,  # float32 will do, and near its end the cosine is a small difference of large numbers
    cases=rate_cases,
    observe=observe_rate,
    expected=expected_rate,
    mistakes=[
        Mistake(
            "scaled by the batch of one replica",
            a_rate(peak=lambda base, per_replica, replicas: base * per_replica / 256),
            went_wrong=lambda case, seen, expected: (
                f"Your peak is {seen[PEAK]:.4g}; {expected[PEAK]:.4g} was wanted, {case['replicas']} times "
                "as much. You scaled by what one replica sees; an update is made from all replicas' examples."
            ),
            try_this="The global batch is `per_replica * replicas`.",
        ),
        Mistake(
            "scaled by the number of replicas alone",
            a_rate(peak=lambda base, per_replica, replicas: base * replicas),
            went_wrong=lambda case, seen, expected: (
                f"Your peak is {case['replicas']} times `base_rate`. That would be right if each replica had "
                f"256 examples; here it has {case['per_replica']}."
            ),
            try_this="Compare the *global* batch with the 256 that `base_rate` is right for.",
        ),
        Mistake(
            "not scaled",
            a_rate(peak=lambda base, per_replica, replicas: base),
            went_wrong=lambda case, seen, expected: (
                f"Your peak is `base_rate`, which is right for 256 examples an update. Here an update has "
                f"{case['per_replica'] * case['replicas']}."
            ),
            try_this="k times the batch, k times the rate.",
        ),
        Mistake(
            "scaled the wrong way round",
            a_rate(peak=lambda base, per_replica, replicas: base * 256 / (per_replica * replicas)),
            went_wrong=lambda case, seen, expected: (
                f"The batch is {factor(case):g} times 256, and you made the rate as many times smaller."
            ),
            try_this="Fewer updates, longer steps: the rate grows with the batch.",
        ),
        Mistake(
            "scaled by the square root",
            a_rate(peak=lambda base, per_replica, replicas: base * math.sqrt(per_replica * replicas / 256)),
            went_wrong="You scaled with the square root of the batch. There is such a rule, and for Adam it "
            "is often the better one; asked for was the linear one.",
            try_this="k times the batch, k times the rate.",
        ),
        Mistake(
            "a warm-up of no steps divides by zero",
            a_rate(rises=lambda step, warmup: step <= warmup),
            went_wrong="With `warmup_steps=0` your answer divides by 0 at step 0.",
            try_this="Rise only while `step < warmup_steps`; at `warmup_steps` itself the cosine has begun.",
        ),
        Mistake(
            "off by one at the warm-up's end",
            a_rate(rise=lambda step, warmup, total: (step + 1) / warmup),
            went_wrong=lambda case, seen, expected: (
                "One step is counted too many or too few: the peak belongs to step "
                f"{case['warmup_steps']} exactly, and rate 0 to step 0. You have {seen.get(FIRST, 0):.4g} at "
                f"step 0, {seen[PEAK]:.4g} at step {case['warmup_steps']}, {seen[NEXT]:.4g} one later."
            ),
            try_this="Put step 0 and step `warmup_steps` into your formula by hand.",
            variants=[
                a_rate(rise=lambda step, warmup, total: (step + 1) / (warmup + 1)),
                a_rate(rise=lambda step, warmup, total: step / (warmup - 1)),
                a_rate(
                    rise=lambda step, warmup, total: step / (warmup + 1),
                    rises=lambda step, warmup: step <= warmup,
                ),
                a_rate(done=lambda step, warmup, total: (step - warmup + 1) / (total - warmup)),
                a_rate(
                    rise=lambda step, warmup, total: (step + 1) / warmup,
                    done=lambda step, warmup, total: (step - warmup + 1) / (total - warmup),
                ),
            ],
        ),
        Mistake(
            "off by one at the end",
            a_rate(done=lambda step, warmup, total: (step - warmup) / (total - warmup - 1)),
            went_wrong=lambda case, seen, expected: (
                "Your rate is 0 one update early: that update changes nothing."
                if seen[LAST] < expected[LAST]
                else f"At `total_steps` your rate is still {seen[END]:.2g}: your cosine ends too late."
            ),
            try_this="The cosine takes `total_steps - warmup_steps` steps.",
            variants=[a_rate(done=lambda step, warmup, total: (step - warmup) / (total - warmup + 1))],
        ),
        Mistake(
            "a tensor where a float is wanted",
            a_rate(as_kind=lambda rate: tf.constant(rate, tf.float32)),
            went_wrong="All rates are right, but `LearningRateScheduler` refuses them: it wants a float, "
            "Python's or NumPy's, and gets a tensor or an array.",
            try_this="`math.cos` gives a float. Or wrap what you return: `float(…)`.",
            variants=[of_keras, a_rate(as_kind=np.asarray)],
        ),
        Mistake(
            "a whole number where a float is wanted",
            a_rate(as_kind=lambda rate: rate if rate > 1e-12 else 0),
            went_wrong="All rates are right, but somewhere you return a whole number (0?), and "
            "`LearningRateScheduler` wants a float.",
            try_this="`0.0`, or `float(…)` around what you return.",
            recognises=lambda cases, seen, expected: (
                all(
                    one[TAKEN] == WHOLE and {**one, TAKEN: ACCEPTS}.keys() == e.keys()
                    for one, e in zip(seen, expected, strict=True)
                )
                and all(
                    abs(one[key] - e[key]) < 1e-3
                    for one, e in zip(seen, expected, strict=True)
                    for key in e
                    if key != TAKEN
                )
            ),
        ),
        Mistake(
            "the cosine begins at step 0",
            a_rate(done=lambda step, warmup, total: step / total),
            went_wrong=lambda case, seen, expected: (
                f"At the end of the warm-up the rate falls from nearly {expected[PEAK]:.4g} to "
                f"{seen[PEAK]:.4g} at once: the cosine has been running since step 0."
            ),
            try_this="Count the cosine's steps from `warmup_steps`.",
        ),
        Mistake(
            "the cosine is too long",
            a_rate(done=lambda step, warmup, total: (step - warmup) / total),
            went_wrong=lambda case, seen, expected: (
                f"At the last update the rate should be {expected[LAST]:.2g}, yours is {seen[LAST]:.2g}. The "
                f"warm-up used {case['warmup_steps']} of the {case['total_steps']} steps; the cosine has "
                "only the rest."
            ),
            try_this="It takes `total_steps - warmup_steps` steps.",
            variants=[
                a_rate(
                    done=lambda step, warmup, total: (step - warmup) / total,
                    fall=lambda done: 0.5 * (1 + math.cos(math.pi * done)),
                ),
                ends_at_total_steps,
            ],
        ),
        Mistake(
            "goes on after the end",
            a_rate(fall=lambda done: 0.5 * (1 + math.cos(math.pi * done))),
            went_wrong=lambda case, seen, expected: (
                f"10 steps after the end the rate is {seen[BEYOND]:.4g} again: a cosine comes back up."
            ),
            try_this="Let the share that is done not go beyond 1: `min(…, 1)`.",
        ),
        Mistake(
            "a whole cosine",
            a_rate(fall=lambda done: 0.5 * (1 + math.cos(2 * math.pi * min(done, 1)))),
            went_wrong="Your rate falls to 0 in the middle and rises to the peak again at the end: that is a "
            "whole period. Half of one goes from 1 to -1.",
            try_this="The angle goes from 0 to π.",
        ),
        Mistake(
            "a quarter of a cosine",
            a_rate(fall=lambda done: math.cos(0.5 * math.pi * min(done, 1))),
            went_wrong=lambda case, seen, expected: (
                f"Half way down the rate should be half the peak, {expected[MIDDLE]:.4g}; yours is "
                f"{seen[MIDDLE]:.4g}, and it is steepest at the end, where it should run out gently."
            ),
            try_this="(1 + cos) / 2, with an angle from 0 to π.",
        ),
        Mistake(
            "below zero",
            a_rate(fall=lambda done: math.cos(math.pi * min(done, 1))),
            went_wrong="The cosine itself goes from 1 to -1, and a negative rate climbs the loss.",
            try_this="Add 1 and take half of it.",
        ),
        Mistake(
            "a straight line down",
            a_rate(fall=lambda done: 1 - min(done, 1)),
            went_wrong="Beginning, middle and end are right, but in between you go down in a straight line.",
            try_this="`0.5 * (1 + math.cos(math.pi * done))`",
        ),
        Mistake(
            "never goes down",
            a_rate(fall=lambda done: 1.0),
            went_wrong="After the warm-up your rate stays at the peak for ever.",
            try_this="From `warmup_steps` to `total_steps` it follows half a cosine, down to 0.",
        ),
        Mistake(
            "no warm-up",
            a_rate(
                rises=lambda step, warmup: False,
                done=lambda step, warmup, total: max(step - warmup, 0) / (total - warmup),
            ),
            went_wrong="You begin at the peak. A model that has not learned anything yet is thrown about by "
            "steps as long as these.",
            try_this="While `step < warmup_steps`: `peak * step / warmup_steps`.",
            variants=[
                a_rate(rises=lambda step, warmup: False, done=lambda step, warmup, total: step / total)
            ],
        ),
        Mistake(
            "rises from base_rate",
            a_rate(start=lambda base: base),
            went_wrong=lambda case, seen, expected: (
                f"You begin with `base_rate`, {seen[FIRST]:.4g}, as Goyal et al. did; here the warm-up "
                "begins at 0."
            ),
            try_this="Step k has k / warmup_steps of the peak.",
        ),
    ],
    also_right=[of_the_course, of_numpy, lambda *args, **how: float(of_keras(*args, **how))],
)


# --- 06.accumulate: one update from many parts ----------------------------------------------------------

WEIGHTS, LOSS = "weights after the update", "loss, summed over the replicas"
UPDATES, MEMORY = "updates", "most examples in memory at once"
MEETINGS = "all-reduces of your own, a replica"
AT_MOST_ONE = "at most one"
STEP = 0.5
MOST_REPLICAS = 2


@functools.cache
def strategy_of(replicas):
    """One strategy for each number of replicas: making one costs more than a step."""
    devices.simulate(MOST_REPLICAS)  # before a smaller strategy starts TensorFlow with fewer
    return devices.mirrored(replicas)


def part_cases(random):
    """Parts of unequal length, and replicas with unequally many examples."""
    return [
        {
            "about": " and ".join(f"parts of {', '.join(map(str, mine))}" for mine in sizes)
            + f" examples on {len(sizes)} replica{'s' * (len(sizes) > 1)}",
            "sizes": sizes,
            "images": random.normal(0, 1, (sum(map(sum, sizes)), 3)).round(2).astype("f4"),
            "labels": random.integers(0, 3, sum(map(sum, sizes))),
            "kernel": random.normal(0, 1, (3, 3)).round(2).astype("f4"),
        }
        for sizes in ([[3, 3]], [[4, 4, 1]], [[3, 3], [3, 3]], [[4, 2, 2], [3, 1, 1]])
    ]


def observe_accumulate(answer, case):
    """One large update on real replicas: weights, loss, and what it took."""
    strategy, memories, own = strategy_of(len(case["sizes"])), {}, OwnAllReduces()
    with strategy.scope():
        model, optimizer = watched_model(memories), own.optimizer()
        optimizer.build(model.trainable_variables)
    model.set_weights([case["kernel"], np.zeros(3, "f4")])
    memories.clear()
    shares = parts_of(case)

    def on_a_replica(replica):
        loss = answer(model, optimizer, shares[int(replica)], len(case["labels"]))
        return tf.constant(returned.number(loss, "accumulate"), tf.float32)

    with own, quietly():
        losses = on_all(strategy, on_a_replica)
    meetings = own.count / len(case["sizes"])
    return {
        LOSS: float(sum(losses)),
        WEIGHTS: np.concatenate([w.ravel() for w in model.get_weights()]),
        UPDATES: int(optimizer.iterations.numpy()),
        MEMORY: max((memory.most for memory in memories.values()), default=0),
        MEETINGS: AT_MOST_ONE if meetings <= 1 else f"{meetings:g}",
    }


def parts_of(case):
    """For each replica, a list of (images, labels)."""
    cuts = np.cumsum([0, *(size for mine in case["sizes"] for size in mine)])
    parts = iter(
        [
            (tf.constant(case["images"][a:b]), tf.constant(case["labels"][a:b]))
            for a, b in itertools.pairwise(cuts)
        ]
    )
    return [[next(parts) for _ in mine] for mine in case["sizes"]]


def on_all(strategy, on_a_replica):
    # Not converted by AutoGraph: an error shall point at the learner's own line.
    plain = tf.autograph.experimental.do_not_convert(on_a_replica)
    numbers = strategy.experimental_distribute_values_from_function(
        lambda context: context.replica_id_in_sync_group
    )
    try:
        return strategy.experimental_local_results(strategy.run(plain, args=(numbers,)))
    except RuntimeError as error:
        if "`merge_call` called while defining a new graph" not in str(error):
            raise
        raise returned.Unusable(
            "accumulate brings replicas together inside a tf.function of its own."
        ) from error


class Memory:
    """How many examples' activations are alive at once: a tape that goes on keeps those of earlier parts."""

    def __init__(self):
        self.most, self._alive = 0, []

    def add(self, activations):
        self._alive = [(ref, count) for ref, count in self._alive if ref() is not None]
        self._alive.append((weakref.ref(activations), int(activations.shape[0])))
        self.most = max(self.most, sum(count for _, count in self._alive))


def watched_model(memories):
    """Softmax regression whose input passes through a layer that notes what is kept in memory."""

    class Watch(keras.layers.Layer):
        def call(self, inputs):
            outputs = inputs * 1.0
            if inputs.shape[0] is not None and tf.executing_eagerly():
                context = tf.distribute.get_replica_context()
                memory = memories.setdefault(int(context.replica_id_in_sync_group), Memory())
                memory.add(outputs)
            return outputs

    return keras.Sequential([keras.Input((3,)), Watch(), keras.layers.Dense(3)])


class OwnAllReduces:
    """Counts the all-reduces that an answer asks for itself, not those inside `optimizer.apply`."""

    def __init__(self):
        self.count, self._here = 0, threading.local()  # each replica has a thread of its own

    def optimizer(self):
        """An SGD whose own all-reduces do not count."""

        class Uncounted(keras.optimizers.SGD):
            def apply(uncounted, *args, **how):
                self._here.inside = True
                try:
                    return super(Uncounted, uncounted).apply(*args, **how)
                finally:
                    self._here.inside = False

        return Uncounted(STEP)

    def __enter__(self):
        self._original = tf.distribute.ReplicaContext.all_reduce

        @functools.wraps(self._original)
        def all_reduce(context, *args, **how):
            self.count += not getattr(self._here, "inside", False)
            return self._original(context, *args, **how)

        tf.distribute.ReplicaContext.all_reduce = all_reduce
        return self

    def __exit__(self, *_):
        tf.distribute.ReplicaContext.all_reduce = self._original


def update_on_one_device(case):
    """The same update by hand: softmax regression, mean loss over all examples, one SGD step from bias 0."""
    images, kernel = case["images"].astype(float), case["kernel"].astype(float)
    chances = np.exp(images @ kernel)
    chances /= chances.sum(axis=1, keepdims=True)
    wanted = np.eye(3)[case["labels"]]
    slope = (chances - wanted) / len(images)
    return {
        LOSS: float(-np.log((chances * wanted).sum(axis=1)).mean()),
        WEIGHTS: np.concatenate([(kernel - STEP * images.T @ slope).ravel(), -STEP * slope.sum(axis=0)]),
        UPDATES: 1,
        MEMORY: max(size for mine in case["sizes"] for size in mine),
        MEETINGS: AT_MOST_ONE,
    }


def losses_of(model, images, labels):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(images, training=True))


def all_reduced(op, value):
    return tf.distribute.get_replica_context().all_reduce(op, value)


def replicas_here():
    return tf.distribute.get_strategy().num_replicas_in_sync


def as_probabilities(model, images, labels):
    return keras.losses.sparse_categorical_crossentropy(labels, model(images, training=True))


def an_update(
    loss_of=losses_of,
    share=lambda losses, large, parts: tf.reduce_sum(losses) / large,
    each=lambda gradients: gradients,
    combine=lambda held, new: [a + b for a, b in zip(held, new, strict=True)],
    finish=lambda held, parts: held,
    after_each=False,
    apply=True,
    reported=lambda shares: sum(shares),
):
    """An accumulate that may differ from the right one in one place."""

    def accumulate(model, optimizer, parts, large_batch):
        held, shares = [tf.zeros_like(variable) for variable in model.trainable_variables], []
        for images, labels in parts:
            with tf.GradientTape() as tape:
                loss = share(loss_of(model, images, labels), large_batch, parts)
            new = each(tape.gradient(loss, model.trainable_variables))
            held = combine(held, new)
            shares.append(loss)
            if after_each:
                optimizer.apply(new, model.trainable_variables)
        if apply and not after_each:
            optimizer.apply(finish(held, parts), model.trainable_variables)
        return reported(shares)

    return accumulate


def here_in(parts):
    return sum(len(labels) for _, labels in parts)


def glued(model, optimizer, parts, large_batch):
    images, labels = (tf.concat(column, 0) for column in zip(*parts, strict=True))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(losses_of(model, images, labels)) / large_batch
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    return loss


def one_tape(model, optimizer, parts, large_batch):
    with tf.GradientTape() as tape:
        loss = sum(tf.reduce_sum(losses_of(model, *part)) for part in parts) / large_batch
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    return loss


def reduced_by_hand(model, optimizer, parts, large_batch):
    """Sums first, divides at the end, and reduces once by itself; the optimizer's own sum is made up for."""
    held, total = None, 0.0
    for images, labels in parts:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(losses_of(model, images, labels))
        new = tape.gradient(loss, model.trainable_variables)
        held = new if held is None else [a + b for a, b in zip(held, new, strict=True)]
        total += loss
    sums = all_reduced("SUM", held)
    optimizer.apply([g / large_batch / replicas_here() for g in sums], model.trainable_variables)
    return total / large_batch


def in_variables(model, optimizer, parts, large_batch):
    """Weighted by hand: each part's mean times its share of the large batch."""
    held = [np.zeros(variable.shape, "f4") for variable in model.trainable_variables]
    total = 0.0
    for images, labels in parts:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(losses_of(model, images, labels)) * (len(labels) / large_batch)
        for kept, gradient in zip(held, tape.gradient(loss, model.trainable_variables), strict=True):
            kept += gradient.numpy()
        total += float(loss)
    optimizer.apply([tf.constant(kept) for kept in held], model.trainable_variables)
    return total


ACCUMULATE = Exercise(
    id="06.accumulate",
    title="One update from many parts",
    points=3,
    length="about 9 lines",
    signature="accumulate(model, optimizer, parts, large_batch)",
    slow=True,
    hints=[
        "A tape for each part, inside the loop. What do you do with its gradients, and when does the "
        "optimizer get any?",
        "Each *example* shall count 1 / `large_batch`, whatever part it is in: the sum of a part's losses "
        "over `large_batch`.",
        "Begin with `[tf.zeros_like(v) for v in model.trainable_variables]`, add each part's gradients, and "
        "after the loop call `optimizer.apply(held, model.trainable_variables)` once: it sums over replicas.",
    ],
    cases=part_cases,
    observe=observe_accumulate,
    expected=update_on_one_device,
    mistakes=[
        Mistake(
            "mean of unequal means",
            an_update(
                share=lambda losses, large, parts: tf.reduce_mean(losses) / len(parts) / replicas_here()
            ),
            went_wrong=lambda case, seen, expected: (
                "Right while all parts are equally long. You take the mean of each part and the mean of "
                "those: an example in a part of 1 then counts as much as all of a part of 4. This is what "
                "Keras' `gradient_accumulation_steps` does."
            ),
            try_this="Let each example count 1 / `large_batch`.",
        ),
        Mistake(
            "mean of the parts, on each replica",
            an_update(share=lambda losses, large, parts: tf.reduce_mean(losses) / len(parts)),
            went_wrong="Right on one replica with equal parts. You take the mean over this replica's parts, "
            "and the replicas' means are then *added*; short parts count too much besides.",
            try_this="The sum of a part's losses over `large_batch`: then everything may be added.",
        ),
        Mistake(
            "mean over this replica's examples",
            an_update(share=lambda losses, large, parts: tf.reduce_sum(losses) / here_in(parts)),
            went_wrong=lambda case, seen, expected: (
                f"Your loss is {seen[LOSS]:.4g}, one device has {expected[LOSS]:.4g}. You divide by what "
                "this replica holds, and the replicas' shares are added up."
            ),
            try_this="`large_batch` counts the examples of all replicas.",
        ),
        Mistake(
            "sum of the parts' means",
            an_update(share=lambda losses, large, parts: tf.reduce_mean(losses)),
            went_wrong=lambda case, seen, expected: (
                f"The loss is {seen[LOSS]:.4g}, one device has {expected[LOSS]:.4g}. Each part's mean stands "
                "for a whole batch already, and you add them up."
            ),
            try_this="The sum of a part's losses over `large_batch`.",
        ),
        Mistake(
            "divided by the parts as well",
            an_update(share=lambda losses, large, parts: tf.reduce_sum(losses) / large / len(parts)),
            went_wrong=lambda case, seen, expected: (
                f"The step is {len(case['sizes'][0])} times too small: `large_batch` counts all parts."
            ),
            try_this="Divide once.",
            variants=[
                an_update(
                    finish=lambda held, parts: [g / len(parts) for g in held],
                    reported=lambda shares: sum(shares) / len(shares),
                ),
                an_update(finish=lambda held, parts: [g / len(parts) for g in held]),
            ],
        ),
        Mistake(
            "divided by the replicas as well",
            an_update(share=lambda losses, large, parts: tf.reduce_sum(losses) / large / replicas_here()),
            went_wrong=lambda case, seen, expected: (
                f"The step is {len(case['sizes'])} times too small: `large_batch` counts all replicas."
            ),
            try_this="Divide once.",
            variants=[an_update(finish=lambda held, parts: [g / replicas_here() for g in held])],
        ),
        Mistake(
            "not divided",
            an_update(share=lambda losses, large, parts: tf.reduce_sum(losses)),
            went_wrong=lambda case, seen, expected: (
                f"The loss is {len(case['labels'])} times too big: it is a sum over all examples, not a mean."
            ),
            try_this="Divide by `large_batch`.",
        ),
        Mistake(
            "an update for each part",
            an_update(after_each=True),
            went_wrong=lambda case, seen, expected: (
                f"You made {seen[UPDATES]} updates. The second part's gradients were taken at weights that "
                "the first had already moved: that is training with small batches, and as many all-reduces."
            ),
            try_this="Add the gradients up in the loop; apply them after it.",
        ),
        Mistake(
            "the last part only",
            an_update(combine=lambda held, new: new),
            went_wrong="You made one update, from the gradients of the last part alone: the others were "
            "computed and overwritten.",
            try_this="Add each part's gradients to those that you hold.",
            variants=[
                an_update(combine=lambda held, new: new, reported=lambda shares: shares[-1]),
            ],
        ),
        Mistake(
            "all parts in memory at once",
            glued,
            went_wrong=lambda case, seen, expected: (
                f"The update is right, but {seen[MEMORY]} examples were in memory at once, and the largest "
                f"part has {expected[MEMORY]}. The parts were made because more does not fit. (A tape around "
                "the whole loop keeps every part's activations, too.)"
            ),
            try_this="Open a tape for each part, and take its gradients before the next.",
            variants=[one_tape],
        ),
        Mistake(
            "an all-reduce for each part",
            an_update(
                each=lambda gradients: all_reduced("SUM", gradients),
                finish=lambda held, parts: [g / replicas_here() for g in held],
            ),
            went_wrong=lambda case, seen, expected: (
                f"The update is right, but the replicas met {seen[MEETINGS]} times for it. Sums can be taken "
                "in any order: add up your own parts first, then once with the others."
            ),
            try_this="Leave the all-reduce to `optimizer.apply`.",
            variants=[an_update(each=lambda gradients: all_reduced("MEAN", gradients))],
        ),
        Mistake(
            "gradients reduced twice",
            an_update(finish=lambda held, parts: all_reduced("SUM", held)),
            went_wrong=lambda case, seen, expected: (
                f"The loss is right, the step is {len(case['sizes'])} times too big: you summed over the "
                "replicas, and `optimizer.apply` did it again."
            ),
            try_this="Hand the optimizer this replica's own sum.",
            variants=[an_update(each=lambda gradients: all_reduced("SUM", gradients))],
        ),
        Mistake(
            "logits taken for probabilities",
            an_update(loss_of=as_probabilities),
            went_wrong=lambda case, seen, expected: (
                f"The loss is {seen[LOSS]:.3g}, one device has {expected[LOSS]:.3g}. The model gives logits, "
                "and your loss takes them for probabilities, as Keras' losses do if nobody says otherwise."
            ),
            try_this="`from_logits=True`, or `tf.nn.sparse_softmax_cross_entropy_with_logits`.",
        ),
        Mistake(
            "never applied",
            an_update(apply=False),
            went_wrong="The loss is right, but the weights are those from before.",
            try_this="After the loop: `optimizer.apply(held, model.trainable_variables)`.",
        ),
        Mistake(
            "the loss of one part",
            an_update(reported=lambda shares: shares[-1]),
            went_wrong="The update is right. The loss that you return is that of a single part.",
            try_this="Add up the parts' shares of the loss as well.",
            variants=[an_update(reported=lambda shares: shares[0])],
        ),
        Mistake(
            "the loss reduced twice",
            an_update(reported=lambda shares: all_reduced("SUM", sum(shares))),
            went_wrong=lambda case, seen, expected: (
                f"The update is right, the loss that you return is {len(case['sizes'])} times too big: each "
                "replica returns the loss of all, and the caller adds them up."
            ),
            try_this="Return this replica's share.",
        ),
        Mistake(
            "the mean of the parts' shares",
            an_update(reported=lambda shares: sum(shares) / len(shares)),
            went_wrong="The update is right. The loss that you return is divided by the number of parts, but "
            "each share is already divided by `large_batch`.",
            try_this="Add the shares up.",
        ),
    ],
    also_right=[reduced_by_hand, in_variables, an_update(reported=lambda shares: float(sum(shares)))],
)


# --- 06.keep_the_best: stop early, with the best weights -------------------------------------------------

RETURNED, TRAINED, HOLDS = "losses returned", "epochs trained", "the model holds epoch"
BEFORE = 9.0  # the loss of a model that was not trained


def stop_cases(random):
    """Validation losses of the epochs as they would come, and where it should end."""
    shapes = [
        ("it gets worse", [3, 2, 1, 1.5, 1.2, 1.1, 0.5], 2),
        ("the epochs run out first", [3, 1, 2], 4),
        ("equal is not better", [3, 2, 2, 2, 1], 2),
        ("a worse epoch now and then", [3, 3.5, 2, 2.5, 1, 1.5, 1.6, 0.5], 2),
        ("the first is the best", [1, 2, 3, 0.5], 2),
        ("better than the one before, but not the best", [1, 3, 2.5, 2, 0.5], 3),
        ("some losses are NaN", [3, math.nan, 2, math.nan, math.nan, 1], 2),
    ]
    return [
        {
            "about": f"{about}, patience {patience}",
            "losses": [round(loss + shift, 3) for loss in losses],
            "patience": patience,
        }
        for (about, losses, patience), shift in zip(shapes, random.uniform(0, 1, len(shapes)), strict=True)
    ]


class Training:
    """A model of one weight, which is the number of the epoch that it was trained for last."""

    def __init__(self, losses):
        self.losses, self.epochs = losses, []
        zero = keras.initializers.Zeros()
        layer = keras.layers.Dense(1, use_bias=False, kernel_initializer=zero)
        self.model = keras.Sequential([keras.Input((1,)), layer])

    def train_epoch(self, epoch):
        self.epochs.append(int(epoch))
        if len(self.epochs) > 3 * len(self.losses):
            raise returned.Unusable("keep_the_best does not end: more epochs were trained than there are.")
        self.model.weights[0].assign([[float(epoch)]])

    def validate(self):
        epoch = self.held()
        return self.losses[epoch - 1] if 0 < epoch <= len(self.losses) else BEFORE

    def held(self):
        return round(float(self.model.get_weights()[0].item()))


def observe_stop(answer, case):
    job = Training(case["losses"])
    losses = answer(job.model, job.train_epoch, job.validate, len(case["losses"]), case["patience"])
    losses = [float(returned.number(loss, "A loss")) for loss in returned.items(losses, "keep_the_best")]
    return {RETURNED: losses, TRAINED: job.epochs, HOLDS: job.held()}


def stop_as_it_should(case):
    """From the whole list, looking back: the first epoch behind which `patience` others are no better."""
    losses = [math.inf if math.isnan(loss) else loss for loss in case["losses"]]
    bests = [losses.index(min(losses[: end + 1])) for end in range(len(losses))]
    stops = [end for end, best in enumerate(bests) if end - best >= case["patience"]]
    end = min([*stops, len(losses) - 1])
    return {RETURNED: case["losses"][: end + 1], TRAINED: [*range(1, end + 2)], HOLDS: bests[end] + 1}


def a_stop(
    better=lambda loss, best, before: loss < best,
    enough=lambda waited, patience: waited == patience,
    resets=True,
    copy=lambda model: model.get_weights(),
    restores=lambda stopped: True,
    first=1,
    best=math.inf,
    validate_first=False,
):
    """A keep_the_best that may differ from the right one in one place."""

    def keep_the_best(model, train_epoch, validate, epochs, patience):
        losses, lowest, kept, waited, stopped = [], best, copy(model), 0, False
        for epoch in range(first, first + epochs):
            loss = validate() if validate_first else None
            train_epoch(epoch)
            losses.append(validate() if loss is None else loss)
            if better(losses[-1], lowest, losses[-2] if len(losses) > 1 else math.inf):
                lowest, kept, waited = losses[-1], copy(model), 0 if resets else waited
            else:
                waited += 1
            stopped = enough(waited, patience)
            if stopped:
                break
        if restores(stopped):
            for variable, value in zip(model.weights, kept, strict=True):
                variable.assign(value)
        return losses

    return keep_the_best


def with_keras_callback(model, train_epoch, validate, epochs, patience):
    stopper = keras.callbacks.EarlyStopping("val_loss", patience=patience, restore_best_weights=True)
    stopper.set_model(model)
    model.stop_training = False
    stopper.on_train_begin()
    losses = []
    while len(losses) < epochs and not model.stop_training:
        train_epoch(len(losses) + 1)
        losses.append(validate())
        stopper.on_epoch_end(len(losses) - 1, {"val_loss": losses[-1]})
    stopper.on_train_end()
    return losses


def looking_back(model, train_epoch, validate, epochs, patience, lowest=np.nanargmin):
    """Keeps the weights of every epoch, and looks for the lowest loss among them."""
    losses, all_weights = [], []
    for epoch in range(epochs):
        train_epoch(epoch + 1)
        losses.append(validate())
        all_weights.append(model.get_weights())
        best = int(lowest(losses))
        if epoch - best >= patience:
            break
    model.set_weights(all_weights[best])
    return np.array(losses)


KEEP_THE_BEST = Exercise(
    id="06.keep_the_best",
    title="Stop early, keep the best",
    points=3,
    length="about 12 lines",
    signature="keep_the_best(model, train_epoch, validate, epochs, patience)",
    slow=True,
    hints=[
        "What must you remember from one epoch to the next? The lowest loss so far, the weights that had it, "
        "and how many epochs have passed since.",
        "`model.get_weights()` gives arrays, copies that stay as they are; `model.weights` are the variables "
        "themselves, which go on changing.",
        "After the loop, however it ended: `model.set_weights(…)`.",
    ],
    cases=stop_cases,
    observe=observe_stop,
    expected=stop_as_it_should,
    mistakes=[
        Mistake(
            "the last weights stay",
            a_stop(restores=lambda stopped: False),
            went_wrong=lambda case, seen, expected: (
                f"You stop where you should, but the model has the weights of epoch {seen[HOLDS]}, the last; "
                f"the best was {expected[HOLDS]}. Either nothing is put back, or what you kept were the "
                "variables themselves (`model.weights`), which went on changing."
            ),
            try_this="Keep `model.get_weights()`, copies, and after the loop `model.set_weights(…)`.",
            variants=[a_stop(copy=lambda model: list(model.weights))],
        ),
        Mistake(
            "put back only when stopped early",
            a_stop(restores=lambda stopped: stopped),
            went_wrong=lambda case, seen, expected: (
                f"When the epochs run out before your patience, the model keeps the weights of epoch "
                f"{seen[HOLDS]}; the best was {expected[HOLDS]}."
            ),
            try_this="Put the best weights back after the loop, however it ended.",
        ),
        Mistake(
            "put back only when the epochs run out",
            a_stop(restores=lambda stopped: not stopped),
            went_wrong="When you stop early, the model keeps the weights of the last epoch. A `return` in "
            "the loop leaves out what comes after it.",
            try_this="`break` out of the loop, and put the best weights back after it.",
        ),
        Mistake(
            "waits one epoch too long",
            a_stop(enough=lambda waited, patience: waited > patience),
            went_wrong=lambda case, seen, expected: (
                f"With a patience of {case['patience']} you trained {len(seen[TRAINED])} epochs instead of "
                f"{len(expected[TRAINED])}."
            ),
            try_this="Stop as soon as `patience` epochs in a row have brought nothing: `>=`, not `>`.",
        ),
        Mistake(
            "waits one epoch too few",
            a_stop(enough=lambda waited, patience: waited >= patience - 1),
            went_wrong=lambda case, seen, expected: (
                f"With a patience of {case['patience']} you stop after {len(seen[TRAINED])} epochs; "
                f"{len(expected[TRAINED])} was right."
            ),
            try_this="The best epoch itself does not count as one that brought nothing.",
        ),
        Mistake(
            "no patience",
            a_stop(enough=lambda waited, patience: waited >= 1),
            went_wrong="You stop at the first epoch that is no better. Validation losses go up and down.",
            try_this="Count the epochs without a new lowest loss; stop when there are `patience` of them.",
        ),
        Mistake(
            "never stops",
            a_stop(enough=lambda waited, patience: False),
            went_wrong=lambda case, seen, expected: (
                f"You train all {len(seen[TRAINED])} epochs, whatever the losses say."
            ),
            try_this="Leave the loop when `patience` epochs in a row have brought no new lowest loss.",
        ),
        Mistake(
            "the counter is never reset",
            a_stop(resets=False),
            went_wrong="You count all epochs that brought nothing, not those *in a row*: a new lowest loss "
            "has to set the counter back to 0.",
            try_this="Set it to 0 where you keep the new best weights.",
        ),
        Mistake(
            "compared with the epoch before",
            a_stop(better=lambda loss, best, before: loss < before),
            went_wrong="You ask whether an epoch is better than the one before it. After a bad epoch nearly "
            "every other is, though none is a new lowest.",
            try_this="Remember the lowest loss so far and compare with that.",
        ),
        Mistake(
            "equal counts as better",
            a_stop(better=lambda loss, best, before: loss <= best),
            went_wrong=lambda case, seen, expected: (
                "A loss equal to the lowest counts as a new one for you: the counter starts anew, and a "
                "training that has come to rest is not stopped."
            ),
            try_this="Better is `<`.",
        ),
        Mistake(
            "NaN counts as better",
            a_stop(better=lambda loss, best, before: not loss >= best),
            went_wrong="A loss that is NaN is taken for an improvement, and its weights are kept: every "
            "comparison with NaN is false, so `not loss >= best` is true.",
            try_this="Ask `loss < best`, which NaN never is.",
        ),
        Mistake(
            "NaN counts as the lowest",
            functools.partial(looking_back, lowest=np.argmin),
            went_wrong="A loss that is NaN is taken for the lowest of all, as `np.argmin` and `np.min` do: "
            "nothing is better from then on.",
            try_this="`np.nanargmin` leaves NaN out; or ask `loss < best`, which NaN never is.",
        ),
        Mistake(
            "the highest loss is kept",
            a_stop(better=lambda loss, best, before: loss > best, best=-math.inf),
            went_wrong="You look for the highest value, as one would for an accuracy. This is a loss.",
            try_this="Lower is better.",
        ),
        Mistake(
            "epochs counted from 0",
            a_stop(first=0),
            went_wrong=lambda case, seen, expected: (
                f"You trained epochs {seen[TRAINED]}; they are counted from 1."
            ),
            try_this="`range(1, epochs + 1)`",
        ),
        Mistake(
            "validated before the epoch",
            a_stop(validate_first=True),
            went_wrong="Each loss that you have is that of the epoch before: the weights that you keep for "
            "it are not the ones that had it.",
            try_this="First `train_epoch`, then `validate`.",
        ),
    ],
    also_right=[
        with_keras_callback,
        looking_back,
        a_stop(enough=lambda waited, patience: waited >= patience),
    ],
)

EXERCISES = [LEARNING_RATE, ACCUMULATE, KEEP_THE_BEST]
