"""The exercises of lesson 01: make in scope, say which copies stay equal, measure how far apart they are."""

import contextlib
import functools

import numpy as np

from course_utils.exercises import returned
from course_utils.exercises.model import Exercise, Mistake, lazy
from course_utils.exercises.returned import Unusable

tf = lazy("tensorflow")
keras = lazy("keras")
devices = lazy("course_utils.devices")

WEIGHT, MOMENTUM, TOTAL = "copies of a weight", "copies of a momentum", "copies of the metric's total"
COUNTED, TRAINED = "steps that the optimizer counts after 2", "weights after 2 steps"


# 01.1 The right things in scope


def scope_cases(random):
    return [
        {
            "about": "4 replicas, one dense layer, SGD with momentum",
            "replicas": 4,
            "x": random.integers(1, 9, (8, 2)).astype("float32") / 8,
            "start": random.integers(1, 4, (2, 1)).astype("float32"),
        }
    ]


def observe_scope(answer, case):
    strategy = devices.mirrored(case["replicas"])
    try:
        made = answer(strategy, *_recipes(case))
    except RuntimeError as error:
        if "with strategy.scope()" not in str(error):
            raise
        raise Unusable("The optimizer was made under the scope and built outside of it.") from error
    model, optimizer, metric = _made(made)
    variables = model.trainable_variables[0], _momentum(optimizer), metric.variables[0]
    weight, momentum, total = (_copies(strategy, variable) for variable in variables)
    trained = _train_twice(strategy, model, optimizer, metric, case)
    return {WEIGHT: weight, MOMENTUM: momentum, TOTAL: total, **trained}


def expected_scope(case):
    """Two steps of SGD with momentum on one device, in NumPy."""
    weight = case["start"].astype(float)
    velocity = np.zeros_like(weight)
    for _ in range(2):
        velocity = 0.5 * velocity - 0.1 * _gradient(weight, case)
        weight = weight + velocity
    n = case["replicas"]
    return {WEIGHT: n, MOMENTUM: n, TOTAL: n, COUNTED: 2, TRAINED: weight.ravel()}


def _gradient(weight, case):
    """Of the mean of the squared outputs over the whole batch."""
    return 2 * case["x"].T @ (case["x"] @ weight) / len(case["x"])


def _recipes(case):
    def make_model():
        start = keras.initializers.Constant(case["start"])
        layer = keras.layers.Dense(1, use_bias=False, kernel_initializer=start)
        return keras.Sequential([keras.Input((2,)), layer])

    def make_optimizer():
        return keras.optimizers.SGD(0.1, momentum=0.5)

    return make_model, make_optimizer, keras.metrics.Mean


def _made(result):
    made = returned.items(result, "build_in_scope", 3)
    for thing, kind, name in zip(
        made, (keras.Model, keras.Optimizer, keras.Metric), ("model", "optimizer", "metric"), strict=True
    ):
        if not isinstance(thing, kind):
            raise Unusable(
                "build_in_scope should return model, optimizer, metric, in this order; "
                f"in the place of the {name} is {returned.describe(thing)}."
            )
    return made


def _momentum(optimizer):
    """The optimizer's first momentum; None as long as it has none."""
    return next((v for v in optimizer.variables if "momentum" in v.path), None)


def _copies(strategy, variable):
    return 0 if variable is None else len(strategy.experimental_local_results(variable.value))


def _train_twice(strategy, model, optimizer, metric, case):
    """What two steps on the same batch make of the weights, or how they stopped."""
    shares = np.split(case["x"], case["replicas"])
    inputs = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(shares[context.replica_id_in_sync_group])
    )

    def on_each_replica(x):
        with tf.GradientTape() as tape:
            squares = tf.reduce_sum(model(x) ** 2, axis=-1)
            loss = tf.reduce_sum(squares) / len(case["x"])
        weights = model.trainable_variables
        optimizer.apply(tape.gradient(loss, weights), weights)
        metric.update_state(squares)

    step = tf.function(on_each_replica)
    try:
        for _ in range(2):
            strategy.run(step, args=(inputs,))
    except Exception as error:  # what TensorFlow says of variables from outside: any of several types
        return {COUNTED: f"stopped by {type(error).__name__}", TRAINED: "not trained"}
    return {COUNTED: int(optimizer.iterations.numpy()), TRAINED: model.trainable_variables[0].numpy().ravel()}


def _making(model_in, optimizer_in, metric_in, build=True):
    """An answer that makes the named parts in the scope and the others outside."""

    def answer(strategy, make_model, make_optimizer, make_metric):
        with _scope(strategy, model_in):
            model = make_model()
        with _scope(strategy, optimizer_in):
            optimizer = make_optimizer()
            if build:
                optimizer.build(model.trainable_variables)
        with _scope(strategy, metric_in):
            metric = make_metric()
        return model, optimizer, metric

    return answer


def _built_outside(strategy, make_model, make_optimizer, make_metric):
    with strategy.scope():
        model, optimizer, metric = make_model(), make_optimizer(), make_metric()
    optimizer.build(model.trainable_variables)
    return model, optimizer, metric


def _all_in_one_line(strategy, make_model, make_optimizer, make_metric):
    with strategy.scope():
        return make_model(), make_optimizer(), make_metric()


def _scope(strategy, wanted):
    return strategy.scope() if wanted else contextlib.nullcontext()


def _says_optimizer_outside(case, seen, expected):
    if isinstance(seen[COUNTED], str):
        return "The optimizer was made outside the scope, so its momentum has one copy for all replicas."
    return (
        f"After 2 steps the optimizer has counted {seen[COUNTED]}. It was made outside the scope: there is "
        "one counter and one momentum, and every replica updated them in every step. The weights are wrong "
        "too."
    )


BUILD_IN_SCOPE = Exercise(
    id="01.build_in_scope",
    title="The right things in scope",
    points=2,
    length="about 5 lines",
    signature="build_in_scope(strategy, make_model, make_optimizer, make_metric)",
    slow=True,
    hints=[
        "Which of the three hold variables? A model has weights; an optimizer has momentum and a step "
        "counter; a metric has a total and a count.",
        "All three do. Open `with strategy.scope():` once, and make all three under it.",
        "Under the scope: `model = make_model()`, `optimizer = make_optimizer()`, then "
        "`optimizer.build(model.trainable_variables)`, then the metric. Return the three.",
    ],
    cases=scope_cases,
    observe=observe_scope,
    expected=expected_scope,
    mistakes=[
        Mistake(
            "nothing in scope",
            _making(False, False, False),
            went_wrong="Every variable has one copy. All was made outside `strategy.scope()`, so nothing is "
            "mirrored, and the strategy cannot train it.",
            try_this="Make all three under `with strategy.scope():`.",
            variants=[_making(False, False, False, build=False)],
        ),
        Mistake(
            "model outside scope",
            _making(False, True, True),
            went_wrong="The model's weights have no copy on each replica: the model was made before the "
            "scope was opened. TensorFlow says so only later, and in other words.",
            try_this="Move `make_model()` under `with strategy.scope():`. Calling or building on it there "
            "is too late.",
            variants=[_making(False, True, True, build=False), _making(False, True, False)],
        ),
        Mistake(
            "optimizer outside scope",
            _making(True, False, True),
            went_wrong=_says_optimizer_outside,
            try_this="Make and build the optimizer under the scope too: it holds variables like a model "
            "does.",
            variants=[_making(True, False, True, build=False)],
        ),
        Mistake(
            "only the model in scope",
            _making(True, False, False),
            went_wrong="The weights are mirrored, but the optimizer's momentum and the metric's total have "
            "one copy for all replicas. The scope is not about the model: it is about whatever holds "
            "variables.",
            try_this="Make all three under the scope.",
            variants=[_making(True, False, False, build=False)],
        ),
        Mistake(
            "metric outside scope",
            _making(True, True, False),
            went_wrong="Model and optimizer are right. But the metric's total has one copy, into which all "
            "replicas write, instead of one for each replica, added up when it is read.",
            try_this="Make the metric under the scope too.",
        ),
        Mistake(
            "optimizer not built",
            _making(True, True, True, build=False),
            went_wrong="All is in scope, but the optimizer has no momentum yet: Keras will make it within "
            "the first step, when the replicas are already at work. In this small job that happens to pass.",
            try_this="`optimizer.build(model.trainable_variables)`, under the scope.",
            variants=[_all_in_one_line],
        ),
        Mistake(
            "optimizer built outside scope",
            _built_outside,
            went_wrong="The optimizer was made under the scope and built outside of it. `build` makes its "
            "momentum, and TensorFlow refuses to make a part of what belongs to a strategy elsewhere.",
            try_this="`optimizer.build(model.trainable_variables)` belongs under the scope too.",
        ),
    ],
    also_right=[
        _making(True, True, True),
        lambda strategy, make_model, make_optimizer, make_metric: _in_one_call(
            strategy, make_metric, make_model, make_optimizer
        ),
    ],
)


def _in_one_call(strategy, make_metric, make_model, make_optimizer):
    """Another order, a list instead of a tuple."""
    with strategy.scope():
        metric, optimizer, model = make_metric(), make_optimizer(), make_model()
        optimizer.build(model.trainable_variables)
    return [model, optimizer, metric]


# 01.2 Which copies stay equal?

SYNCHRONISED = "synchronised BatchNorm mean"
WHAT = (
    "weight",
    "Adam's momentum",
    "metric's total",
    "BatchNorm mean",
    SYNCHRONISED,
    "images seen",
    "brightest pixel",
)


def observe_equal(answer, case):
    given = returned.mapping(answer, "stays_equal")
    missing = [name for name in WHAT if given.get(name) is None]
    if missing:
        raise Unusable(f"stays_equal still needs True or False for {missing[0]!r}.")
    return {name: returned.truth(given[name], f"The entry {name!r}") for name in WHAT}


def expected_equal(case):
    return dict(zip(WHAT, _measured(), strict=True))


@functools.cache
def _measured():
    """The job itself, two steps on 4 replicas: for each of WHAT, whether its copies are equal."""
    strategy = devices.mirrored(4)
    with strategy.scope():
        layers = [keras.layers.BatchNormalization(synchronized=wanted) for wanted in (False, True)]
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4), *layers, keras.layers.Dense(1)])
        optimizer = keras.optimizers.Adam(0.01)
        optimizer.build(model.trainable_variables)
        metric = keras.metrics.Mean()
        seen = tf.Variable(0, aggregation=tf.VariableAggregation.SUM)
        brightest = tf.Variable(0.0)
    images = np.random.default_rng(0).random((4, 5, 3)).astype("float32")
    inputs = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(images[context.replica_id_in_sync_group])
    )

    def on_each_replica(x):
        with tf.GradientTape() as tape:
            losses = tf.reduce_sum((model(x, training=True) - 1) ** 2, axis=-1)
            loss = tf.reduce_sum(losses) / images[..., 0].size
        weights = model.trainable_variables
        optimizer.apply(tape.gradient(loss, weights), weights)
        metric.update_state(losses)
        seen.assign_add(tf.shape(x)[0])
        brightest.assign(tf.reduce_max(x))

    step = tf.function(on_each_replica)
    for _ in range(2):
        strategy.run(step, args=(inputs,))
    momentum = next(v for v in optimizer.variables if v.path.endswith("kernel_momentum"))
    variables = [
        model.layers[0].kernel,
        momentum,
        metric.variables[0],
        *(layer.moving_mean for layer in layers),
    ]
    return [_equal(strategy, variable) for variable in [*(v.value for v in variables), seen, brightest]]


def _equal(strategy, variable):
    copies = np.stack([copy.numpy() for copy in strategy.experimental_local_results(variable)])
    return bool((copies == copies[0]).all())


def _but(**changed):
    """A prediction: the right one but for the entries named (with _ for a space)."""
    right = dict(zip(WHAT, (True, True, False, False, True, True, False), strict=True))
    return right | {name: changed[key] for name in WHAT if (key := _key(name)) in changed}


def _key(name):
    return name.replace("'s", "").replace(" ", "_")


STAYS_EQUAL = Exercise(
    id="01.stays_equal",
    title="Which copies stay equal?",
    points=1,
    length="7 times True or False",
    signature="stays_equal",
    hints=[
        "Ask of each: what does a replica write into it? The same as all others, or something of its own?",
        "What comes out of `optimizer.apply` was added up over the replicas before. What a layer or you "
        "write in the forward pass was not, unless the variable or the layer says so.",
    ],
    observe=observe_equal,
    expected=expected_equal,
    mistakes=[
        Mistake(
            "always equal",
            dict.fromkeys(WHAT, True),
            went_wrong="You expect every copy to be equal because it is called *mirrored*. Nobody compares "
            "the copies: they are equal only where every replica writes the same.",
            try_this='Look at the row "NONE" of the first table: one mirrored variable, four values.',
        ),
        Mistake(
            "each replica trains its own model",
            dict.fromkeys(WHAT, False),
            went_wrong="You expect nothing to be equal, as if each replica trained for itself. The "
            "optimizer adds the gradients of all replicas up first, so all weights get one and the same "
            "update.",
            try_this='Compare the rows "gradient of a weight" and "weight" in the table of the training '
            "step.",
        ),
        Mistake(
            "momentum of its own",
            _but(Adam_momentum=False),
            went_wrong="All is right but the momentum. It is an average of past gradients, and the gradients "
            "that the optimizer works with are already the sum over all replicas.",
            try_this="In which order does `optimizer.apply` add up, and update its own variables?",
        ),
        Mistake(
            "a metric has one value",
            _but(metric_total=True),
            went_wrong="A metric's *result* is one number, its copies are not: each replica keeps the "
            "total of its own examples, and they are added up when somebody reads.",
            try_this='Look at the row "SUM, on read" of the first table.',
            variants=[_but(metric_total=True, BatchNorm_mean=True)],
        ),
        Mistake(
            "BatchNorm mean taken for a weight",
            _but(BatchNorm_mean=True),
            went_wrong="The moving mean of a plain BatchNormalization layer is no weight that the "
            "optimizer updates: each replica writes the mean of its own share into its own copy.",
            try_this="Count the images that change class with the replica, above.",
        ),
        Mistake(
            "synchronised changes nothing",
            _but(synchronised_BatchNorm_mean=False),
            went_wrong="With `synchronized=True` every replica computes the mean over the whole batch, so "
            "all write the same.",
            try_this='Look at the row "synchronized" in the picture of the moving mean.',
        ),
        Mistake(
            "any variable is kept equal",
            _but(brightest_pixel=True),
            went_wrong="`brightest pixel` has no aggregation. Each replica writes the maximum of its own "
            "share, and nothing brings the four values together.",
            try_this="Which aggregation would have to be there? Is there one that fits a maximum?",
        ),
        Mistake(
            "aggregation overlooked",
            _but(images_seen=False),
            went_wrong="`images seen` was made with the aggregation SUM: the four contributions are added "
            "up when they are written, and all copies get the sum.",
            try_this='Look at the row "SUM" of the first table.',
        ),
    ],
)


# 01.3 How far apart?


def apart_cases(random):
    """Replicas that agree; that differ in the last one only; in sign; in a place that a mean would hide."""
    same = np.tile(random.integers(1, 9, 3), (4, 1))
    last = same.copy()
    last[3, 1] += random.integers(2, 9)
    swapped = np.array([[5, 1], [1, 5], [3, 3]]) * random.integers(2, 9)
    falling = np.array([[9.0], [4.0]]) + random.integers(0, 9)
    abouts = (
        "4 replicas that agree",
        "only replica 3 differs",
        "3 replicas, equal means",
        "2 replicas, the first larger",
    )
    return [
        {"about": about, "values": values.astype("float32")}
        for about, values in zip(abouts, (same, last, swapped, falling), strict=True)
    ]


def observe_apart(answer, case):
    strategy = devices.mirrored(len(case["values"]))
    asked = set()

    def function():
        context = tf.distribute.get_replica_context()
        # Under scope() no replica is at work: the first copy is read, as TensorFlow does with variables.
        me = context.replica_id_in_sync_group if context else 0
        # The value while tracing too: an answer may wrap this in a tf.function, traced for each replica.
        at_work = context and strategy.num_replicas_in_sync == context.num_replicas_in_sync
        asked.add(int(tf.get_static_value(me)) if at_work else "nobody")
        return tf.gather(tf.constant(case["values"]), me)

    found = returned.number(answer(strategy, function), "largest_difference")
    return {"largest difference": float(found), "replicas that were asked": len(asked - {"nobody"})}


def expected_apart(case):
    return {
        "largest difference": float(np.ptp(case["values"], axis=0).max()),
        "replicas that were asked": len(case["values"]),
    }


def _answers(strategy, function):
    return np.stack([value.numpy() for value in strategy.experimental_local_results(strategy.run(function))])


def _in_scope_only(strategy, function):
    with strategy.scope():
        values = [function().numpy() for _ in range(strategy.num_replicas_in_sync)]
    return np.ptp(values, axis=0).max()


def _without_scope(strategy, function):
    values = [function().numpy() for _ in range(strategy.num_replicas_in_sync)]
    return np.ptp(values, axis=0).max()


def _unpacked_in_scope(strategy, function):
    with strategy.scope():
        values = strategy.experimental_local_results(function())
    return np.ptp([value.numpy() for value in values], axis=0).max()


def _first_against_second(strategy, function):
    values = _answers(strategy, function)
    return np.abs(values[0] - values[1]).max()


def _signed(strategy, function):
    values = _answers(strategy, function)
    return max((b - a).max() for a in values[:1] for b in values)


def _of_means(strategy, function):
    return np.ptp(_answers(strategy, function).mean(axis=1))


def _all_entries_mixed(strategy, function):
    return np.ptp(_answers(strategy, function))


def _with_a_reduce(strategy, function):
    values = _answers(strategy, function)
    mean = strategy.reduce("MEAN", strategy.run(function), axis=None).numpy()
    return np.abs(values - mean).max()


def _pair_by_pair(strategy, function):
    values = strategy.experimental_local_results(strategy.run(function))
    return max(tf.reduce_max(tf.abs(a - b)) for a in values for b in values)


def _gathered(strategy, function):
    values = tf.stack(strategy.experimental_local_results(strategy.run(function)))
    return tf.reduce_max(tf.reduce_max(values, axis=0) - tf.reduce_min(values, axis=0))


def _in_a_graph(strategy, function):
    """Each replica runs a graph of its own."""
    values = strategy.experimental_local_results(strategy.run(tf.function(function)))
    return max(np.ptp([value.numpy() for value in values], axis=0))


def _all_in_one_graph(strategy, function):
    @tf.function
    def ask_all():
        return tf.stack(strategy.experimental_local_results(strategy.run(function)))

    return np.ptp(ask_all(), axis=0).max()


def _graph_without_replicas(strategy, function):
    values = [tf.function(function)().numpy() for _ in range(strategy.num_replicas_in_sync)]
    return np.ptp(values, axis=0).max()


LARGEST_DIFFERENCE = Exercise(
    id="01.largest_difference",
    title="How far apart?",
    points=2,
    length="about 3 lines",
    signature="largest_difference(strategy, function)",
    hints=[
        "Which call sends a function to every replica, and which takes the result apart? Both are in this "
        "lesson.",
        "`values = [v.numpy() for v in strategy.experimental_local_results(strategy.run(function))]` is "
        "one array for each replica. Compare them entry by entry.",
        "`np.ptp(values, axis=0)` is the largest minus the smallest of each entry. Which of these is the "
        "answer?",
    ],
    cases=apart_cases,
    observe=observe_apart,
    expected=expected_apart,
    mistakes=[
        Mistake(
            "scope makes it parallel",
            _in_scope_only,
            went_wrong=lambda case, seen, expected: (
                f"No replica was asked, where {len(case['values'])} should be. Code under `scope()`, or "
                "outside of all, runs once and as nobody: you compared one value with itself."
            ),
            try_this="`strategy.run(function)` sends the function to every replica.",
            variants=[_without_scope, _unpacked_in_scope, _graph_without_replicas],
        ),
        Mistake(
            "first two only",
            _first_against_second,
            went_wrong="You compared replica 0 with replica 1. The others may differ as well, and in one "
            "case only the last one does.",
            try_this="Take the largest and the smallest over *all* replicas.",
        ),
        Mistake(
            "sign not removed",
            _signed,
            went_wrong="Your difference counts only when another replica lies *above* replica 0. Where it "
            "lies below, you miss it.",
            try_this="Take the largest minus the smallest, or the absolute value.",
        ),
        Mistake(
            "difference of the means",
            _of_means,
            went_wrong="You compared one mean a replica. `[5, 1]` and `[1, 5]` have the same mean, and are "
            "not equal.",
            try_this="Compare entry by entry, and reduce last.",
        ),
        Mistake(
            "entries mixed",
            _all_entries_mixed,
            went_wrong="You took the largest of all numbers minus the smallest of all. That is not 0 even "
            "where all replicas agree, because the entries of one replica differ from each other.",
            try_this="Largest minus smallest *over the replicas*, for each entry: which axis is that?",
        ),
        Mistake(
            "distance from the mean",
            _with_a_reduce,
            went_wrong="You measured how far replicas are from their mean; two replicas that are 4 apart "
            "are each 2 from it.",
            try_this="Compare the replicas with each other.",
        ),
    ],
    also_right=[_pair_by_pair, _gathered, _in_a_graph, _all_in_one_graph],
)

EXERCISES = [BUILD_IN_SCOPE, STAYS_EQUAL, LARGEST_DIFFERENCE]
