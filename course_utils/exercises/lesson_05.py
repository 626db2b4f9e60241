"""The exercises of lesson 05: a step, epochs, and a restore that can be trusted.

Steps and epochs run on real replicas and are held against one device, worked out in NumPy.
"""

import contextlib
import functools
import gc
import logging
import os
import tempfile
from pathlib import Path

import numpy as np

from course_utils.errors import CourseError
from course_utils.exercises import returned
from course_utils.exercises.model import Exercise, Mistake, lazy

tf = lazy("tensorflow")
keras = lazy("keras")
devices = lazy("course_utils.devices")
training = lazy("course_utils.training")

STEP_LOSS = "loss, summed over the replicas"
WEIGHTS = "weights after one SGD step"
LOSSES = "loss of each epoch"
ACCURACIES = "accuracy of each epoch"
SAVED = "saved after epochs"
HOLDS = "the plain model holds epoch"
ENDED = "it ended"
LEARNING_RATE = 0.5


@functools.cache
def strategy_of(replicas):
    """One strategy for each number of replicas: making one costs more than a step."""
    return devices.mirrored(replicas)


def share_of(values, replica, replicas):
    """The part of a batch that a replica gets: ceil(B / replicas) examples, the last may get less."""
    size = -(-len(values) // replicas)
    return values[replica * size : (replica + 1) * size]


def replicas_here():
    return tf.distribute.get_strategy().num_replicas_in_sync


@contextlib.contextmanager
def quietly():
    """A context without TensorFlow's warnings, which speak of how the check works, not of the answer."""
    logger = tf.get_logger()
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


# --- train_step


def step_cases(random):
    return [
        {
            "about": f"{replicas} replica{'s' * (replicas > 1)}, {examples} examples in the global batch",
            "replicas": replicas,
            "images": random.normal(0, 1, (examples, 2)).round(2).astype(np.float32),
            "labels": random.integers(0, 3, examples),
            "kernel": random.normal(0, 1, (2, 3)).round(2).astype(np.float32),
        }
        for replicas, examples in ((1, 4), (2, 8), (2, 5), (4, 8))
    ]


def observe_step(answer, case):
    """One step on real replicas: what the shares add up to, and the weights afterwards."""
    strategy = strategy_of(case["replicas"])
    with strategy.scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
        optimizer = keras.optimizers.SGD(LEARNING_RATE)
        optimizer.build(model.trainable_variables)
    model.set_weights([case["kernel"], np.zeros(3, np.float32)])

    def on_a_replica(replica):
        images, labels = (share_of(case[key], int(replica), case["replicas"]) for key in ("images", "labels"))
        loss = answer(model, optimizer, tf.constant(images), tf.constant(labels), len(case["labels"]))
        return tf.constant(returned.number(loss, "train_step"), tf.float32)

    # Not converted by AutoGraph: an error shall point at the learner's own line.
    plain = tf.autograph.experimental.do_not_convert(on_a_replica)
    numbers = strategy.experimental_distribute_values_from_function(
        lambda context: context.replica_id_in_sync_group
    )
    with quietly():
        shares = strategy.experimental_local_results(strategy.run(plain, args=(numbers,)))
    return {STEP_LOSS: float(sum(shares)), WEIGHTS: np.concatenate([w.ravel() for w in model.get_weights()])}


def step_on_one_device(case):
    """The same step by hand: softmax regression, mean loss over the whole batch, one SGD step from bias 0."""
    images, kernel = case["images"].astype(float), case["kernel"].astype(float)
    scores = images @ kernel
    chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    wanted = np.eye(3)[case["labels"]]
    slope = (chances - wanted) / len(images)
    stepped = [kernel - LEARNING_RATE * images.T @ slope, -LEARNING_RATE * slope.sum(axis=0)]
    return {
        STEP_LOSS: float(-np.log((chances * wanted).sum(axis=1)).mean()),
        WEIGHTS: np.concatenate([w.ravel() for w in stepped]),
    }


def a_step(
    scale=lambda losses, batch: tf.reduce_sum(losses) / batch,
    reported=lambda loss, losses: loss,
    reduced=lambda gradients: gradients,
    apply=True,
    from_logits=True,
    model_of=lambda model: model,
):
    """A train_step that may differ from the right one in one place."""

    def train_step(model, optimizer, images, labels, global_batch_size):
        with tf.GradientTape() as tape:
            scores = model(images, training=True)
            losses = keras.losses.sparse_categorical_crossentropy(labels, scores, from_logits=from_logits)
            loss = scale(losses, global_batch_size)
        gradients = reduced(tape.gradient(loss, model.trainable_variables))
        if apply:
            optimizer.apply(gradients, model.trainable_variables)
        return reported(loss, losses)

    return train_step


def all_reduced(op, value):
    return tf.distribute.get_replica_context().all_reduce(op, value)


def with_keras_loss(model, optimizer, images, labels, global_batch_size):
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)
    with tf.GradientTape() as tape:
        losses = loss_of(labels, model(images, training=True))
        loss = tf.nn.compute_average_loss(losses, global_batch_size=global_batch_size)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return loss


def reduced_by_hand(model, optimizer, images, labels, global_batch_size):
    """All-reduce first, as for clipping the global gradient; the optimizer's own sum is made up for."""
    with tf.GradientTape() as tape:
        logits = model(images, training=True)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        loss = tf.reduce_sum(losses) / global_batch_size
    gradients = all_reduced("SUM", tape.gradient(loss, model.trainable_variables))
    optimizer.apply([g / replicas_here() for g in gradients], model.trainable_variables)
    return loss


TRAIN_STEP = Exercise(
    id="05.train_step",
    title="One step on one replica",
    points=3,
    length="about 7 lines",
    signature="train_step(model, optimizer, images, labels, global_batch_size)",
    slow=True,
    hints=[
        "Forward inside a `tf.GradientTape`, gradients outside of it, then let the optimizer apply them. "
        "Return what this replica contributes to the loss.",
        "The model gives logits: `tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)` gives the "
        "loss of each example. How lesson 04 made one number of them is `training.average_loss`.",
        "`optimizer.apply(gradients, model.trainable_variables)` sums the gradients over the replicas "
        "before it changes the weights. You need no all-reduce of your own.",
    ],
    cases=step_cases,
    observe=observe_step,
    expected=step_on_one_device,
    mistakes=[
        Mistake(
            "mean per replica",
            a_step(scale=lambda losses, batch: tf.reduce_mean(losses)),
            went_wrong=lambda case, seen, expected: (
                f"On {case['replicas']} replicas the loss is {seen[STEP_LOSS]:.4g}, one device has "
                f"{expected[STEP_LOSS]:.4g}, and the gradient is too big by as much. Each replica took the "
                "mean over its own examples, and the sum over the replicas counts every mean in full."
            ),
            try_this="Divide the sum of this replica's losses by `global_batch_size`, as in lesson 04.",
            variants=[
                a_step(scale=lambda losses, batch: tf.reduce_sum(losses) / tf.cast(len(losses), "float32"))
            ],
        ),
        Mistake(
            "divided twice",
            a_step(scale=lambda losses, batch: tf.reduce_sum(losses) / batch / replicas_here()),
            went_wrong=lambda case, seen, expected: (
                f"The step is {case['replicas']} times too small. The global batch already counts the "
                "examples of all replicas; you divided by the number of replicas as well."
            ),
            try_this="Leave the division by the number of replicas out.",
            variants=[
                a_step(
                    scale=lambda losses, batch: tf.reduce_sum(losses) / batch,
                    reduced=lambda gradients: [g / replicas_here() for g in gradients],
                    reported=lambda loss, losses: loss / replicas_here(),
                )
            ],
        ),
        Mistake(
            "not divided",
            a_step(scale=lambda losses, batch: tf.reduce_sum(losses)),
            went_wrong=lambda case, seen, expected: (
                f"The loss is {len(case['labels'])} times too big, and so is the step: it is the sum over "
                f"the {len(case['labels'])} examples of the batch, not their mean."
            ),
            try_this="Divide by `global_batch_size`.",
        ),
        Mistake(
            "gradients reduced twice",
            a_step(reduced=lambda gradients: all_reduced("SUM", gradients)),
            went_wrong=lambda case, seen, expected: (
                f"The loss is right, the step is {case['replicas']} times too big. You summed the gradients "
                "over the replicas, and then `optimizer.apply` did it again: in Keras 3 it always does."
            ),
            try_this="Hand the optimizer this replica's own gradients.",
        ),
        Mistake(
            "gradients averaged over the replicas",
            a_step(reduced=lambda gradients: [g / replicas_here() for g in gradients]),
            went_wrong=lambda case, seen, expected: (
                f"The loss is right, the step is {case['replicas']} times too small. The replicas' gradients "
                "have to be *added*: each is already divided by the global batch."
            ),
            try_this="Hand the optimizer the gradients as they come from the tape.",
        ),
        Mistake(
            "gradients never applied",
            a_step(apply=False),
            went_wrong="The loss is right, but the weights are those from before the step.",
            try_this="Call `optimizer.apply(gradients, model.trainable_variables)`.",
        ),
        Mistake(
            "loss reduced twice",
            a_step(reported=lambda loss, losses: all_reduced("SUM", loss)),
            went_wrong=lambda case, seen, expected: (
                f"The step is right, the loss that you report is {case['replicas']} times too big: each "
                "replica returns the loss of all replicas, and the caller adds them up."
            ),
            try_this="Return this replica's share; the caller reduces it.",
        ),
        Mistake(
            "reports the mean of its share",
            a_step(reported=lambda loss, losses: tf.reduce_mean(losses)),
            went_wrong=lambda case, seen, expected: (
                "The step is right. The loss that you return is the mean over this replica's examples, and "
                f"the sum over {case['replicas']} replicas is not the loss of the batch."
            ),
            try_this="Return the same number that the gradient was taken of.",
        ),
        Mistake(
            "logits taken for probabilities",
            a_step(from_logits=False),
            went_wrong="The model's last layer has no softmax: it gives logits, any real numbers. The loss "
            "read them as probabilities.",
            try_this="Use `from_logits=True`, or `tf.nn.sparse_softmax_cross_entropy_with_logits`.",
            variants=[a_step(from_logits=False, scale=lambda losses, batch: tf.reduce_mean(losses))],
        ),
    ],
    also_right=[with_keras_loss, reduced_by_hand],
)


# --- run_epochs


def epoch_cases(random):
    return [
        {
            "about": f"{replicas} replicas, {epochs} epochs of {steps} steps",
            "replicas": replicas,
            "epochs": epochs,
            "steps": steps,
            "batch": 2 * replicas,
            "losses": random.integers(1, 50, 2 * replicas * (epochs * steps + 1)).astype(np.float32),
            "right": random.integers(0, 2, 2 * replicas * (epochs * steps + 1)).astype(np.float32),
        }
        for replicas, epochs, steps in ((2, 2, 3), (4, 3, 2))
    ]


def observe_epochs(answer, case):
    """Epochs over numbers: a step's share is the sum of its losses over the global batch, as in lesson 04."""
    strategy = strategy_of(case["replicas"])
    with strategy.scope():
        accuracy = keras.metrics.Mean()

    def step(losses, right):
        accuracy.update_state(right)
        return tf.reduce_sum(losses) / case["batch"]

    step = tf.autograph.experimental.do_not_convert(step)
    data = tf.data.Dataset.from_tensor_slices((case["losses"], case["right"])).batch(case["batch"])
    with quietly(), training.iterators_end_at_once():
        dataset = strategy.experimental_distribute_dataset(data)
        history = answer(strategy, step, dataset, case["epochs"], case["steps"], accuracy)
    history = returned.items(history, "run_epochs", length=case["epochs"])
    pairs = [returned.items(pair, "An entry of what run_epochs returns", length=2) for pair in history]
    return {
        name: [returned.number(pair[i], what) for pair in pairs]
        for i, (name, what) in enumerate([(LOSSES, "A loss"), (ACCURACIES, "An accuracy")])
    }


def epochs_on_one_device(case):
    def means(values):
        used = values[: case["epochs"] * case["steps"] * case["batch"]].astype(float)
        return used.reshape(case["epochs"], -1).mean(axis=1).tolist()

    return {LOSSES: means(case["losses"]), ACCURACIES: means(case["right"])}


def some_epochs(
    reduced=lambda strategy, shares: strategy.reduce("SUM", shares, axis=None),
    of_epoch=lambda losses: sum(losses) / len(losses),
    iterator="one",
    reset="epoch",
):
    """A run_epochs that may differ from the right one in one place."""

    def run_epochs(strategy, step, dataset, epochs, steps, accuracy):
        batches = iter(dataset)
        history = []
        for _ in range(epochs):
            batches = iter(dataset) if iterator == "epoch" else batches
            losses = []
            if reset == "epoch":
                accuracy.reset_state()
            for _ in range(steps):
                if reset == "step":
                    accuracy.reset_state()
                batch = next(iter(dataset) if iterator == "step" else batches)
                losses.append(float(reduced(strategy, strategy.run(step, args=batch))))
            history.append((of_epoch(losses), float(accuracy.result())))
        return history

    return run_epochs


def in_one_graph(strategy, step, dataset, epochs, steps, accuracy):
    """As in the lesson: the steps of an epoch inside one tf.function."""
    batches = iter(dataset)

    @tf.function
    def one_epoch(batches):
        total = 0.0
        for _ in tf.range(steps):
            total += strategy.reduce("SUM", strategy.run(step, args=next(batches)), axis=None)
        return total / steps

    history = []
    for _ in range(epochs):
        accuracy.reset_state()
        history.append((one_epoch(batches), accuracy.result()))
    return history


def with_a_metric(strategy, step, dataset, epochs, steps, accuracy):
    """The reduced losses go into a Mean of their own."""
    batches, history = iter(dataset), []
    for _ in range(epochs):
        loss = keras.metrics.Mean()
        for _ in range(steps):
            shares = strategy.experimental_local_results(strategy.run(step, args=next(batches)))
            loss.update_state(tf.add_n(shares))
        history.append([loss.result().numpy(), accuracy.result().numpy()])
        accuracy.reset_state()
    return history


RUN_EPOCHS = Exercise(
    id="05.run_epochs",
    title="Whole epochs",
    points=3,
    length="about 9 lines",
    signature="run_epochs(strategy, step, dataset, epochs, steps, accuracy)",
    slow=True,
    hints=[
        "Two loops, one in the other: epochs, and steps. What must happen once in all, once an epoch, once "
        "a step?",
        "`strategy.run(step, args=next(batches))` gives one share of the loss for each replica. The shares "
        'add up to the loss of the step: `strategy.reduce("SUM", shares, axis=None)`.',
        "Make the iterator before the first epoch. Reset the metric where an epoch begins. An epoch's loss "
        "is the sum of its steps' losses over the number of steps.",
    ],
    cases=epoch_cases,
    observe=observe_epochs,
    expected=epochs_on_one_device,
    mistakes=[
        Mistake(
            "mean of a loss that is already scaled",
            some_epochs(reduced=lambda strategy, shares: strategy.reduce("MEAN", shares, axis=None)),
            went_wrong=lambda case, seen, expected: (
                f"Your losses are {case['replicas']} times too small. Each replica's share is already "
                f"divided by the global batch; the mean over {case['replicas']} replicas divides once more."
            ),
            try_this='Reduce with "SUM".',
            variants=[
                some_epochs(
                    reduced=lambda strategy, shares: tf.reduce_mean(
                        tf.stack(strategy.experimental_local_results(shares))
                    )
                )
            ],
        ),
        Mistake(
            "first replica's loss",
            some_epochs(reduced=lambda strategy, shares: strategy.experimental_local_results(shares)[0]),
            went_wrong=lambda case, seen, expected: (
                f"Your losses are those of replica 0 alone, and {case['replicas'] - 1} more saw examples."
            ),
            try_this='Add up what all replicas return: `strategy.reduce("SUM", shares, axis=None)`.',
        ),
        Mistake(
            "new iterator each step",
            some_epochs(iterator="step"),
            went_wrong=lambda case, seen, expected: (
                "Every step saw the first batch: a new iterator starts at the beginning. The model would be "
                f"trained on {case['batch']} examples only, and the loss would fall beautifully."
            ),
            try_this="Call `iter(dataset)` once, before the loops, and `next` on what it gives.",
        ),
        Mistake(
            "new iterator each epoch",
            some_epochs(iterator="epoch"),
            went_wrong=lambda case, seen, expected: (
                f"Every epoch saw the same first {case['steps']} batches. The dataset does not end with your "
                "epoch: one iterator goes on where the last epoch stopped. (Ending an iterator of a "
                "distributed dataset can also cost seconds, as you saw above.)"
            ),
            try_this="Call `iter(dataset)` once, before the first epoch.",
        ),
        Mistake(
            "metric never reset",
            some_epochs(reset="never"),
            went_wrong="The first epoch's accuracy is right. From the second on it mixes in the epochs "
            "before: a metric goes on counting until it is reset.",
            try_this="Call `accuracy.reset_state()` where an epoch begins.",
        ),
        Mistake(
            "metric reset each step",
            some_epochs(reset="step"),
            went_wrong="Your accuracy is that of the epoch's last step alone: it was reset at every step.",
            try_this="Reset it once an epoch, before the first step.",
        ),
        Mistake(
            "sum over the steps",
            some_epochs(of_epoch=sum),
            went_wrong=lambda case, seen, expected: (
                f"Your losses are {case['steps']} times too big: sums over {case['steps']} steps."
            ),
            try_this="Divide by the number of steps.",
        ),
        Mistake(
            "loss of the last step",
            some_epochs(of_epoch=lambda losses: losses[-1]),
            went_wrong="Your losses are those of each epoch's last step.",
            try_this="Add the losses of all steps and divide by their number.",
        ),
    ],
    also_right=[in_one_graph, with_a_metric],
    time_limit=40,
)


# --- train_and_restore


def restore_cases(random):
    return [
        {"about": "5 epochs", "epochs": 5, "fits": True},
        {"about": "6 epochs", "epochs": 6, "fits": True},
        {"about": "0 epochs: nothing is ever saved", "epochs": 0, "fits": True},
        {"about": "4 epochs, and the plain model has a layer more", "epochs": 4, "fits": False},
    ]


def observe_restore(answer, case):
    """Trains a mirrored model (an epoch sets its weight to the epoch's number) and looks at what is left."""
    with strategy_of(2).scope():
        model, optimizer = one_weight_model(), keras.optimizers.SGD(0.1)
        optimizer.build(model.trainable_variables)
    plain = one_weight_model(layers=1 if case["fits"] else 2)

    def train_epoch(epoch):
        model.set_weights([np.full(w.shape, epoch, w.dtype) for w in model.get_weights()])

    with quietly(), tempfile.TemporaryDirectory() as folder:
        try:
            answer(train_epoch, case["epochs"], model, optimizer, plain, folder)
            ended = "without complaint"
        except (AssertionError, ValueError, CourseError) as error:
            if isinstance(error, ValueError) and case["fits"] and case["epochs"]:
                raise
            ended = "with an error"
        seen = {SAVED: saved_epochs(folder), ENDED: ended}
        gc.collect()  # a checkpoint warns when it is collected: now, not in a later cell
    if ended == "without complaint":
        seen[HOLDS] = epoch_in(plain)
    return seen


def restore_as_it_should(case):
    epochs = case["epochs"]
    saved = sorted({*range(2, epochs + 1, 2), epochs} - {0})
    if not case["fits"] or not epochs:
        return {SAVED: saved, ENDED: "with an error"}
    return {SAVED: saved, ENDED: "without complaint", HOLDS: str(epochs)}


def one_weight_model(layers=1):
    """A model whose weights are -1: no epoch leaves that."""
    minus_one = {"kernel_initializer": keras.initializers.Constant(-1.0), "use_bias": False}
    return keras.Sequential([keras.Input((1,)), *(keras.layers.Dense(1, **minus_one) for _ in range(layers))])


def epoch_in(model):
    weight = float(model.get_weights()[0].ravel()[0])
    return "none" if weight < 0 else f"{weight:g}"


def saved_epochs(folder):
    """The epochs whose weights lie in the checkpoints under `folder`."""
    epochs = set()
    for index in Path(folder).rglob("*.index"):
        reader = tf.train.load_checkpoint(str(index.with_suffix("")))
        # Its name depends on what else is saved; plain SGD has no other variable of this shape.
        shapes = reader.get_variable_to_shape_map()
        if kernel := next((name for name, shape in shapes.items() if shape == [1, 1]), None):
            epochs.add(int(reader.get_tensor(kernel)[0, 0]))
    return sorted(epochs)


def some_training(
    saves=lambda epoch, epochs: epoch % 2 == 0 or epoch == epochs,
    prove=lambda status: status.assert_existing_objects_matched(),
    which=lambda folder: tf.train.latest_checkpoint(folder),
    into=lambda model, plain: plain,
):
    """A train_and_restore that may differ from the right one in one place."""

    def train_and_restore(train_epoch, epochs, model, optimizer, plain, folder):
        checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
        for epoch in range(1, epochs + 1):
            train_epoch(epoch)
            if saves(epoch, epochs):
                checkpoint.save(os.path.join(folder, "ckpt"))
        target = into(model, plain)
        if target is not None:
            prove(tf.train.Checkpoint(model=target).restore(which(folder)))

    return train_and_restore


def with_a_manager(train_epoch, epochs, model, optimizer, plain, folder):
    """Saved by a manager, and the last epoch always, after the loop."""
    manager = tf.train.CheckpointManager(
        tf.train.Checkpoint(model=model, optimizer=optimizer), folder, max_to_keep=None
    )
    for epoch in range(1, epochs + 1):
        train_epoch(epoch)
        if epoch % 2 == 0:
            manager.save()
    if epochs % 2:
        manager.save()
    if manager.latest_checkpoint is None:
        raise ValueError("nothing was saved")
    status = tf.train.Checkpoint(model=plain).restore(manager.latest_checkpoint)
    status.expect_partial().assert_existing_objects_matched()


def with_the_course(train_epoch, epochs, model, optimizer, plain, folder):
    """The course's own restore() refuses by itself."""
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
    for epoch in range(epochs):
        train_epoch(epoch + 1)
        if epoch % 2 or epoch == epochs - 1:
            checkpoint.save(f"{folder}/ckpt")
    training.restore(plain, folder)


def zero_based(train_epoch, epochs, model, optimizer, plain, folder):
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
    for epoch in range(epochs):
        train_epoch(epoch + 1)
        if epoch % 2 == 0:
            checkpoint.save(f"{folder}/ckpt")
    tf.train.Checkpoint(model=plain).restore(
        tf.train.latest_checkpoint(folder)
    ).assert_existing_objects_matched()


def zero_based_and_unproved(train_epoch, epochs, model, optimizer, plain, folder):
    """As the best-known tutorial has it: two mistakes in one."""
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
    for epoch in range(epochs):
        train_epoch(epoch + 1)
        if epoch % 2 == 0:
            checkpoint.save(f"{folder}/ckpt")
    tf.train.Checkpoint(model=plain).restore(tf.train.latest_checkpoint(folder))


def loses_the_last(cases, seen, expected):
    """Several epochs are saved, but not the last of 5 or not the last of 6."""
    return any(
        case["fits"] and len(s[SAVED]) > 1 and case["epochs"] not in s[SAVED]
        for case, s in zip(cases, seen, strict=True)
    )


def believes_any_restore(cases, seen, expected):
    """It does restore, and it is also content where there was nothing to restore, or nothing that fits."""
    restores = any(s.get(HOLDS, "none") != "none" for s in seen)
    pairs = zip(seen, expected, strict=True)
    return restores and any(s[ENDED] == "without complaint" != e[ENDED] for s, e in pairs)


def first_checkpoint(folder):
    path = os.path.join(folder, "ckpt-1")
    return path if os.path.exists(path + ".index") else None


TRAIN_AND_RESTORE = Exercise(
    id="05.train_and_restore",
    title="Save, restore, and prove it",
    points=3,
    length="about 8 lines",
    signature="train_and_restore(train_epoch, epochs, model, optimizer, plain, folder)",
    slow=True,
    hints=[
        "Make one `tf.train.Checkpoint(model=model, optimizer=optimizer)`. After which of 5 epochs is it to "
        "be saved? After which of 6?",
        'The prefix is a path such as `f"{folder}/ckpt"`. The plain model has no optimizer: restore it with '
        "a checkpoint that holds only `model=plain`.",
        "`restore` gives a status. `status.assert_existing_objects_matched()` raises unless each variable of "
        "the plain model got a value, and also when there was no checkpoint at all.",
    ],
    cases=restore_cases,
    observe=observe_restore,
    expected=restore_as_it_should,
    mistakes=[
        Mistake(
            "last epoch never saved",
            some_training(saves=lambda epoch, epochs: epoch % 2 == 0),
            went_wrong=lambda case, seen, expected: (
                f"Of {case['epochs']} epochs you save {seen[SAVED]}, wanted was {expected[SAVED]}. Your rule "
                "loses the last epoch where the number of epochs is odd, or where it is even: then an older "
                "model is restored than the one that was trained."
            ),
            try_this="Save at the end as well, whatever its number: `or epoch == epochs`.",
            variants=[zero_based, zero_based_and_unproved],
            recognises=loses_the_last,
        ),
        Mistake(
            "saved only at the end",
            some_training(saves=lambda epoch, epochs: epoch == epochs),
            went_wrong="You save once, after the last epoch. Who is interrupted before that has nothing.",
            try_this="Save after every second epoch, and at the end.",
        ),
        Mistake(
            "saved every epoch",
            some_training(saves=lambda epoch, epochs: True),
            went_wrong="You save after every epoch; asked for was every second one, and the last.",
            try_this="`epoch % 2 == 0` is true for every second epoch, if you count from 1.",
        ),
        Mistake(
            "restore of nothing taken for a restore",
            some_training(prove=lambda status: None),
            went_wrong="When all goes well, your plain model is right. But where nothing was "
            "saved, and where the checkpoint does not fit, you go on without a word with random weights: "
            "`restore` skips what it cannot match, and `restore(None)` restores nothing.",
            try_this="Ask the status that `restore` returns: `assert_existing_objects_matched()`.",
            variants=[some_training(prove=lambda status: status.expect_partial())],
            recognises=believes_any_restore,
        ),
        Mistake(
            "asked for too much",
            some_training(prove=lambda status: status.assert_consumed()),
            went_wrong="You demand that *everything* in the checkpoint is used. It also holds the optimizer, "
            "which the plain model does not have, so a good restore is refused.",
            try_this="Ask only that each variable of the plain model got its value: "
            "`assert_existing_objects_matched()`.",
        ),
        Mistake(
            "oldest checkpoint restored",
            some_training(which=first_checkpoint),
            went_wrong=lambda case, seen, expected: (
                "The plain model holds the weights of the first checkpoint. Their number goes up with every "
                "save; the newest is wanted."
            ),
            try_this="`tf.train.latest_checkpoint(folder)` gives the newest one.",
        ),
        Mistake(
            "nothing restored",
            some_training(into=lambda model, plain: None),
            went_wrong="You save, but the plain model still has its own first weights.",
            try_this="Restore into `plain`: `tf.train.Checkpoint(model=plain).restore(path)`.",
            variants=[some_training(into=lambda model, plain: model)],
        ),
    ],
    also_right=[with_a_manager, with_the_course],
    time_limit=40,
)

EXERCISES = [TRAIN_STEP, RUN_EPOCHS, TRAIN_AND_RESTORE]
