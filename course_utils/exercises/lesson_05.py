"""The exercises of lesson 05: a step, epochs, and a restore that can be trusted.

Steps and epochs run on real replicas and are held against one device, worked out in NumPy.
"""

import contextlib
import gc
import os
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np

from course_utils.errors import CourseError
from course_utils.exercises import returned
from course_utils.exercises.model import Exercise, Mistake, lazy
from course_utils.exercises.replicas import quietly, strategy_of

tf = lazy("tensorflow")
keras = lazy("keras")
devices = lazy("course_utils.devices")
training = lazy("course_utils.training")

STEP_LOSS = "loss, summed over the replicas"
WEIGHTS = "weights after one SGD step"
LOSSES = "loss of each epoch"
ACCURACIES = "accuracy of each epoch"
SAVED = "saved after epochs"
WITH_OPTIMIZER = "… with the optimizer"
HOLDS = "the plain model holds epoch"
ENDED = "it ended"
QUIETLY, IN_ERROR = "without complaint", "with an error"
NOT_USED, NO_VALUE = "refused: not all of the checkpoint is used", "refused: something got no value"
LEARNING_RATE = 0.5


def share_of(values, replica, replicas):
    """The part of a batch that a replica gets: ceil(B / replicas) examples, the last may get less."""
    size = -(-len(values) // replicas)
    return values[replica * size : (replica + 1) * size]


def replicas_here():
    return tf.distribute.get_strategy().num_replicas_in_sync


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
    try:
        with quietly():
            shares = strategy.experimental_local_results(strategy.run(plain, args=(numbers,)))
    except RuntimeError as error:
        if "`merge_call` called while defining a new graph" not in str(error):
            raise
        raise returned.Unusable(
            "train_step brings replicas together inside a tf.function of its own."
        ) from error
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


def in_a_function_of_its_own(model, optimizer, images, labels, global_batch_size):
    step = tf.function(a_step())
    return step(model, optimizer, images, labels, global_batch_size)


def with_keras_loss_as_it_comes(model, optimizer, images, labels, global_batch_size):
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    with tf.GradientTape() as tape:
        loss = loss_of(labels, model(images, training=True))
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    return loss


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
        "loss of each example. Make one number of them as in lesson 04: their sum, over the *global* batch.",
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
            "equal shares taken for granted",
            with_keras_loss_as_it_comes,
            went_wrong="Right while all replicas hold equally many examples. Your loss is the mean over this "
            "replica's examples, over the number of replicas (Keras' own loss does both by itself): in a "
            "batch that does not divide, the examples of the short share count for more than the others.",
            try_this="Let each example count 1 / `global_batch_size`: with Keras' loss, `reduction=None`.",
            variants=[a_step(scale=lambda losses, batch: tf.reduce_mean(losses) / replicas_here())],
        ),
        Mistake(
            "a tf.function around one replica's step",
            in_a_function_of_its_own,
            went_wrong="`optimizer.apply` is a meeting of all replicas, and MirroredStrategy cannot hold one "
            "inside a graph that a single replica traces for itself: it raises `merge_call called while "
            "defining a new graph or a tf.function`.",
            try_this="Leave `@tf.function` off here. It belongs around the call of `strategy.run`.",
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
                "distributed dataset can also cost seconds, as you will see below.)"
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
        {"about": about, "epochs": epochs, "fits": fits, "goes on": goes_on}
        for about, epochs, fits, goes_on in (
            ("5 epochs", 5, True, False),
            ("6 epochs", 6, True, False),
            ("0 epochs: nothing is ever saved", 0, True, False),
            ("4 epochs, and the plain model has a layer more", 4, False, False),
            ("4 epochs; after each save other weights are put into both models", 4, True, True),
        )
    ]


class Training:
    """A mirrored model and its optimizer; an epoch sets the weight to its number. And what was saved."""

    def __init__(self, case, folder):
        with strategy_of(2).scope():
            self.model, self.optimizer = one_weight_model(), keras.optimizers.SGD(0.1)
            self.optimizer.build(self.model.trainable_variables)
        self.plain = one_weight_model(layers=1 if case["fits"] else 2)
        self.folder, self.epoch, self.saved, self.with_optimizer = folder, -1, set(), set()

    def train_epoch(self, epoch):
        self.look()  # now: who keeps only the newest checkpoint deletes the others later
        self.epoch = epoch
        set_all(self.model, epoch)
        self.optimizer.iterations.assign(steps_after(epoch))

    def look(self):
        """Note the epochs whose weights lie in the checkpoints under the folder, and the optimizer's."""
        for index in Path(self.folder).rglob("*.index"):
            weight, counts = saved_in(str(index.with_suffix("")))
            if weight is not None:
                self.saved.add(int(weight))
                if steps_after(int(weight)) in counts:
                    self.with_optimizer.add(int(weight))

    @contextlib.contextmanager
    def goes_on_after_each_save(self):
        """Inside, only what is read back from a file can bring a saved weight into the plain model."""
        write = tf.train.Checkpoint._write  # every save, also a manager's, ends here

        def write_and_go_on(checkpoint, *args, **options):
            set_all(self.model, self.epoch)
            path = write(checkpoint, *args, **options)
            set_all(self.model, -1)
            set_all(self.plain, -1)
            return path

        with mock.patch.object(tf.train.Checkpoint, "_write", write_and_go_on):
            yield


def set_all(model, value):
    model.set_weights([np.full(w.shape, value, w.dtype) for w in model.get_weights()])


def steps_after(epoch):
    """What the optimizer counts after an epoch: no number that anything else has."""
    return 1000 * epoch + 7


def saved_in(path):
    """(the kernel in a checkpoint or None, all whole numbers in it)."""
    reader = tf.train.load_checkpoint(path)
    # Its name depends on what else is saved; plain SGD has no other variable of this shape.
    shapes, types = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    kernels = [float(reader.get_tensor(name)[0, 0]) for name, shape in shapes.items() if shape == [1, 1]]
    counts = [int(reader.get_tensor(n)) for n, shape in shapes.items() if not shape and types[n].is_integer]
    return (kernels[0] if kernels else None), counts


def observe_restore(answer, case):
    with quietly(), tempfile.TemporaryDirectory() as folder:
        job = Training(case, folder)
        ended = how_it_ended(answer, case, job)
        job.look()
        gc.collect()  # a checkpoint warns when it is collected: now, not in a later cell
    if case["goes on"]:
        return {HOLDS: epoch_in(job.plain)}
    seen = {SAVED: sorted(job.saved), WITH_OPTIMIZER: sorted(job.with_optimizer), ENDED: ended}
    return {**seen, HOLDS: epoch_in(job.plain)} if ended == QUIETLY else seen


def how_it_ended(answer, case, job):
    """Where nothing can be restored, any error is the one that was asked for."""
    meanwhile = job.goes_on_after_each_save() if case["goes on"] else contextlib.nullcontext()
    try:
        with meanwhile:
            answer(job.train_epoch, case["epochs"], job.model, job.optimizer, job.plain, job.folder)
    except Exception as error:
        if not case["fits"] or not case["epochs"]:
            return IN_ERROR
        # Who compares the two models after the restore is right to complain when one of them has gone on.
        if case["goes on"] and epoch_in(job.plain) != "none":
            return IN_ERROR
        if not isinstance(error, AssertionError | CourseError):
            raise
        return refusal(str(error))
    return QUIETLY


def refusal(message):
    """What TensorFlow's assertions mean; those of the course quote them."""
    if "Unresolved" in message or "Unused attributes" in message:
        return NOT_USED
    if any(words in message for words in ("not assigned a value", "not bound", "Nothing except the root")):
        return NO_VALUE
    return IN_ERROR


def restore_as_it_should(case):
    epochs = case["epochs"]
    if case["goes on"]:
        return {HOLDS: str(epochs)}
    saved = sorted({*range(2, epochs + 1, 2), epochs} - {0})
    seen = {SAVED: saved, WITH_OPTIMIZER: saved}
    if not case["fits"] or not epochs:
        return {**seen, ENDED: IN_ERROR}
    return {**seen, ENDED: QUIETLY, HOLDS: str(epochs)}


def one_weight_model(layers=1):
    """A model whose weights are -1: no epoch leaves that."""
    minus_one = {"kernel_initializer": keras.initializers.Constant(-1.0), "use_bias": False}
    return keras.Sequential([keras.Input((1,)), *(keras.layers.Dense(1, **minus_one) for _ in range(layers))])


def epoch_in(model):
    weight = float(model.get_weights()[0].ravel()[0])
    return "none" if weight < 0 else f"{weight:g}"


def some_training(
    saves=lambda epoch, epochs: epoch % 2 == 0 or epoch == epochs,
    prove=lambda status: status.assert_existing_objects_matched(),
    which=lambda folder: tf.train.latest_checkpoint(folder),
    into=lambda model, plain: plain,
    what=lambda model, optimizer: {"model": model, "optimizer": optimizer},
):
    """A train_and_restore that may differ from the right one in one place."""

    def train_and_restore(train_epoch, epochs, model, optimizer, plain, folder):
        checkpoint = tf.train.Checkpoint(**what(model, optimizer))
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


def compared(train_epoch, epochs, model, optimizer, plain, folder):
    """The proof is a comparison, and only the newest checkpoint is kept."""
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
    manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=1)
    for epoch in range(1, epochs + 1):
        train_epoch(epoch)
        if epoch % 2 == 0 or epoch == epochs:
            manager.save()
    if manager.latest_checkpoint is None:
        raise FileNotFoundError(folder)
    tf.train.Checkpoint(model=plain).restore(manager.latest_checkpoint).expect_partial()
    for mine, theirs in zip(plain.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def written_and(bring_back):
    """Written under a name without a number, and brought back by `bring_back(checkpoint, path)`."""

    def train_and_restore(train_epoch, epochs, model, optimizer, plain, folder):
        path = f"{folder}/newest"
        for epoch in range(1, epochs + 1):
            train_epoch(epoch)
            if epoch % 2 == 0 or epoch == epochs:
                tf.train.Checkpoint(model=model, optimizer=optimizer).write(path)
        bring_back(tf.train.Checkpoint(model=plain), path).assert_existing_objects_matched()

    return train_and_restore


def copied(check, late=True):
    """Saved as it should be; but the plain model gets its weights from the model, not from a file."""

    def train_and_restore(train_epoch, epochs, model, optimizer, plain, folder):
        checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
        for epoch in range(1, epochs + 1):
            train_epoch(epoch)
            if not late:
                plain.set_weights(model.get_weights())
            if epoch % 2 == 0 or epoch == epochs:
                checkpoint.save(f"{folder}/ckpt")
        if check and tf.train.latest_checkpoint(folder) is None:
            raise ValueError("nothing was saved")
        if late:
            plain.set_weights(model.get_weights())

    return train_and_restore


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
        case["fits"] and len(s.get(SAVED, [])) > 1 and case["epochs"] not in s[SAVED]
        for case, s in zip(cases, seen, strict=True)
    )


def believes_any_restore(cases, seen, expected):
    """It does restore, and it is also content where there was nothing to restore, or nothing that fits."""
    restores = any(s.get(HOLDS, "none") != "none" for s in seen)
    pairs = zip(seen, expected, strict=True)
    return restores and any(s.get(ENDED) == QUIETLY != e[ENDED] for s, e in pairs if ENDED in e)


def has_no_optimizer(cases, seen, expected):
    """All is right but for the optimizer, which is in none of the checkpoints."""
    return all(
        s == e if SAVED not in e else {**s, WITH_OPTIMIZER: e[SAVED]} == e and not s[WITH_OPTIMIZER]
        for s, e in zip(seen, expected, strict=True)
    )


def only_copies(cases, seen, expected):
    """The plain model has the last epoch only as long as the model has it too."""
    later = [s[HOLDS] for case, s in zip(cases, seen, strict=True) if case["goes on"]]
    at_once = [s.get(HOLDS) for case, s in zip(cases, seen, strict=True) if case["epochs"] == 5]
    return later == ["none"] and at_once == ["5"]


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
                f"Of {case['epochs']} epochs you save {seen.get(SAVED, 'others')}; wanted was every second "
                "one, and the last. Your rule loses the last epoch where the number of epochs is odd, or "
                "where it is even: then an older model is restored than the one that was trained."
            ),
            try_this="Save at the end as well, whatever its number: `or epoch == epochs`.",
            variants=[zero_based, zero_based_and_unproved],
            recognises=loses_the_last,
        ),
        Mistake(
            "saved only at the end",
            some_training(saves=lambda epoch, epochs: epoch == epochs),
            went_wrong="You save once, after the last epoch. Whoever is interrupted before that has nothing.",
            try_this="Save after every second epoch, and at the end.",
        ),
        Mistake(
            "saved every epoch",
            some_training(saves=lambda epoch, epochs: True),
            went_wrong="You save after every epoch; asked for was every second one, and the last.",
            try_this="`epoch % 2 == 0` is true for every second epoch, if you count from 1.",
        ),
        Mistake(
            "copied, not restored",
            copied(check=True),
            went_wrong="You save, but the plain model gets its weights from the model in memory, not from a "
            "checkpoint. After a crash that model is gone, and whether the files are any good was never "
            "seen.",
            try_this="Restore into `plain` from the newest file: `tf.train.Checkpoint(model=plain)`.",
            variants=[copied(check=False), copied(check=True, late=False)],
            recognises=only_copies,
        ),
        Mistake(
            "saved without the optimizer",
            some_training(what=lambda model, optimizer: {"model": model}),
            went_wrong="The weights are saved and restored as they should. But the checkpoints do not have "
            "the optimizer: whoever goes on from there begins with its step counter and momentum at 0.",
            try_this="`tf.train.Checkpoint(model=model, optimizer=optimizer)`",
            variants=[
                some_training(
                    what=lambda model, optimizer: {"model": model},
                    prove=lambda status: status.assert_consumed(),
                )
            ],
            recognises=has_no_optimizer,
        ),
        Mistake(
            "restored what was only written",
            written_and(lambda checkpoint, path: checkpoint.restore(path)),
            went_wrong="The restore is refused although the weights are there: `restore` also wants the "
            "counter of saves, which `save` puts into the file and `write` does not.",
            try_this="`save` goes with `restore`, `write` goes with `read`.",
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
    also_right=[
        with_a_manager,
        with_the_course,
        compared,
        written_and(lambda checkpoint, path: checkpoint.read(path)),
    ],
    time_limit=40,
)

EXERCISES = [TRAIN_STEP, RUN_EPOCHS, TRAIN_AND_RESTORE]
