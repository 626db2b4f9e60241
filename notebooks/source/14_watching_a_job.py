# %% [markdown]
# # 14 · What is my job doing?
#
# Three workers train one model, and it is slow. The log says so: too few examples a second. Which of them is it that slows down the others? And with what: its processor, or its input?
#
# **After this lesson** you can tell where the time of a step goes on each worker, find the one that all others wait for, read a profile of several workers in TensorBoard, and stop all workers at the same step.
#
# *40 minutes · builds on lessons 03 (all-reduce), 08 (sharding) and 09 (several workers)*

# %%
import tempfile
import time
from pathlib import Path

import course_utils as cu

cu.cluster.warm_up(wait=False)  # the workers-to-be import TensorFlow meanwhile
import keras
import tensorflow as tf

# %% tags=["parameters"]
profile = "laptop"

# %% [markdown]
# ## A step in two halves
#
# To see where the time goes, we cut the step of our own loop in two, just before the all-reduce. What comes before it, a worker does alone. What comes after it needs everybody.
#
# `Recorder` notes the moments in between: the batch is there, the local gradients are there, the weights are updated. It sends each step to the notebook while the job runs (`cu.cluster.report`).
#
# One worker is slow on purpose. Its processor is imitated by a pause: real work would take the two cores of this machine away from the other workers.

# %%
cu.plots.style()
data = cu.datasets.fashion_mnist()
images, labels = data.train_images[:960], data.train_labels[:960]
BATCH, STEPS = 32, 14  # examples of one worker in a step


def two_halves(strategy):
    """(local_gradients, apply): before and after the all-reduce."""
    with strategy.scope():
        model, optimizer = cu.models.mlp([32], seed=0), keras.optimizers.SGD(0.05)
        optimizer.build(model.trainable_variables)
    weights, replicas = model.trainable_variables, strategy.num_replicas_in_sync

    def gradients_of_mine(images, labels):
        with tf.GradientTape() as tape:
            losses = cu.training.per_example_loss(labels, model(images, training=True))
            share = cu.training.average_loss(losses, BATCH * replicas)
        return tf.reduce_mean(losses), tape.gradient(share, weights)

    def update(gradients):  # identity: without it TensorFlow finds no device for them
        optimizer.apply([tf.identity(g) for g in gradients], weights)

    on_each = strategy.run
    local_gradients = tf.function(lambda *batch: on_each(gradients_of_mine, batch))
    return local_gradients, tf.function(lambda g: on_each(update, [g]))


# %% lint_allows="no_sleep"
def batches_of(worker):
    """Endless batches of this worker's part of the examples."""
    mine = images[worker::3], labels[worker::3]
    batches = tf.data.Dataset.from_tensor_slices(mine).repeat()
    return batches.batch(BATCH, drop_remainder=True)


def train(slow=None, slow_disk=None, finite=False):
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    worker = strategy.cluster_resolver.task_id
    local_gradients, apply = two_halves(strategy)
    dataset = batches_of(worker)
    dataset = dataset.map(read_slowly) if worker == slow_disk else dataset
    dataset = dataset.take(STEPS) if finite else dataset
    batches = iter(strategy.distribute_datasets_from_function(lambda context: dataset))
    record = cu.timing.Recorder(local_gradients, apply, report=cu.cluster.report)
    for _ in range(STEPS):
        with record.step(examples=BATCH) as now:
            batch = next(batches)
            now.ready()
            time.sleep(0.15 if worker == slow else 0)  # a slow processor
            loss, gradients = local_gradients(*batch)
            now.computed(loss)
            apply(gradients)
    return record.steps


# %% [markdown]
# ### Predict
#
# Worker 1 computes many times as long as the others. Each worker measures its own examples per second, from the beginning of a step to its end. What will worker 1 report, compared to worker 0: about the same, or far less?

# %% tags=["predict"]
my_guess = None

# %%
live = cu.watching.Live()
cluster = cu.LocalCluster(workers=3, output=live)
slow_worker = cluster.run(train, slow=1)

# %% [markdown]
# (The table and the timeline change while the job runs; what you see in a saved notebook is how it ended. The table's times are medians of the last five steps.)
#
# **The same on all three.** Nobody can begin the next step before everybody's gradients have been added up, so every worker is as fast as the slowest. *Examples per second of a worker say nothing about that worker.* A dashboard with one such curve for each worker shows three curves that lie on each other.
#
# ## Who does not wait
#
# Now look inside the step.


# %%
def picture(steps, title, last=3):
    """The last steps of all workers, each cut into its parts."""
    spans = cu.timing.phases([worker[-last:] for worker in steps])
    return cu.plots.step_phases(spans, title=title)


cu.plots.show(
    picture(slow_worker, "Worker 1 computes slowly"),
    alt="Three steps on three workers. Workers 0 and 2 compute for a moment and then "
    "wait for others; worker 1 computes all the time and waits for nobody.",
)

# %% [markdown]
# Workers 0 and 2 spend the step in their all-reduce, as if *their network* were slow. But they wait for worker 1, which comes last, and for which the all-reduce is over at once. **The straggler is the one who does not wait.**
#
# One worker alone cannot tell waiting from communicating. `timing.phases` can: it lays all workers' moments on one clock. (Clocks of several machines differ by milliseconds. There, compare how *long* each one's all-reduce takes.)
#
# ## Slow for another reason
#
# The next suspect is the input. Now all processors are equal, but worker 1 reads from a slow disk.


# %% lint_allows="no_sleep"
def read_slowly(images, labels):
    def read(pictures):
        time.sleep(0.15)  # a slow disk
        return pictures

    pictures = tf.numpy_function(read, [images], tf.uint8)
    return tf.ensure_shape(pictures, images.shape), labels


slow_input = cluster.run(train, slow_disk=1)
cu.plots.show(
    picture(slow_input, "Worker 1 waits for its data"),
    alt="Three steps on three workers. Worker 1 waits for data most of the time; "
    "workers 0 and 2 have their data at once, and wait for worker 1.",
)

# %% [markdown]
# The same complaint, another culprit. Worker 1 again waits for nobody in the all-reduce, but it does not compute either. A faster processor would change nothing. Neither would prefetching, which is on here as always: it reads ahead during a step, and hides what fits into one. This does not. (The first steps, which neither table nor picture shows, were quick: step 0 took long, and meanwhile batches were read ahead.)
#
# ## A meeting that nobody sees
#
# The dataset above is endless (`repeat()`). With `finite=True` it ends after the last step. Nothing else changes.
#
# ### Predict
#
# Worker 1 has the slow disk again. How long will worker 0 wait for *its* data, which comes at once?

# %% tags=["predict"]
my_guess = None

# %%
finite_input = cluster.run(train, slow_disk=1, finite=True)
cu.plots.show(
    picture(finite_input, "The same, but the dataset ends"),
    alt="Three steps on three workers. All three wait for data most of the time.",
)

# %% [markdown]
# About as long as worker 1. **`next` is an all-reduce, too**, when a dataset can end: in each step the workers ask each other whether anybody has data left, since one that stopped alone would leave the others waiting (lesson 08). To measure, use an endless dataset and count the steps.
#
# ## In `fit`
#
# `cu.callbacks.WorkerMetrics` notes when the batch is there *inside* the training function. Where the all-reduce begins it cannot see, for all of the step is one graph.
#
# TensorBoard's callback takes a **profile** of steps 8 to 11. Each worker writes to a folder of its own. Worker 1 has its slow disk once more.


# %%
def fit(logs):
    cu.keras_multiworker.enable()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    worker = strategy.cluster_resolver.task_id
    with strategy.scope():
        model = cu.models.mlp([128], seed=0)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.05), loss)
    metrics = cu.callbacks.WorkerMetrics(report=cu.cluster.report)
    board = keras.callbacks.TensorBoard(
        Path(logs, f"worker-{worker}"),  # distributed: a folder of its own
        update_freq=1,
        write_graph=False,
        profile_batch=(8, 11),  # the same steps on all of them
    )
    mine = batches_of(worker).map(read_slowly) if worker == 1 else batches_of(worker)
    batches = strategy.distribute_datasets_from_function(lambda context: mine)
    steps = {"steps_per_epoch": 16, "verbose": 0, "shuffle": False}
    model.fit(batches, **steps, callbacks=[metrics, board])
    return metrics.steps


# %%
logs = Path(".course", "tensorboard")  # beside this notebook
pair = cu.LocalCluster(workers=2, output=cu.watching.Live())
in_fit = cu.tensorboard.run_profiled(pair, fit, logs)

for number, steps in enumerate(in_fit):
    usual = cu.timing.median([step.seconds for step in steps[1:]])
    traced = [step.number for step in steps if step.traced]
    times = steps[0].seconds / usual
    print(f"worker {number} traced in step {traced}, for {times:.0f} steps' time")

# %% [markdown]
# ## The step that is no step
#
# In its first call, TensorFlow **traces** the function: it runs our Python once and builds a graph. A mean over the first steps measures that, not the training. And it can happen again: a short last batch has another shape. So `WorkerMetrics` marks the steps in which Python really ran, and the table leaves them out.
#
# ## TensorBoard
#
# `cu.tensorboard.TensorBoard` serves the folder of all workers on a free port, for this machine only, until the kernel ends. What it shows can be asked for as well, and that is how this notebook proves that it is there.


# %%
def milliseconds(steps, part):
    return 1000 * cu.timing.median([step[part] for step in steps])


board = cu.tensorboard.TensorBoard(logs)
board.wait_for("worker-0/train", "worker-1/train")
scalars, profiles = board.scalars(), sorted(board.profiles())
for run in sorted(scalars):
    points = scalars[run]["batch_loss"]
    print(f"{run}: {len(points)} losses, the last is {points[-1][1]:.3f}")

traces = {name.split("/")[0]: board.steps(name) for name in profiles}
print("\nprofile          a step    in all-reduces    waiting for data")
for worker, steps in traces.items():
    parts = [milliseconds(steps, part) for part in ("all", "collectives", "data")]
    print(worker, "{:11.1f} ms {:14.1f} ms {:16.1f} ms".format(*parts))
board.show()

# %% [markdown]
# The losses are equal: what `fit` logs is that of all workers (lesson 09). The profiles differ. They hold every operation, and so the all-reduces of `fit`: worker 0 sits in them, worker 1 waits for its data. The straggler again.
#
# In JupyterLab you see TensorBoard itself. Under *Profile*, choose a worker's run and the tool `trace_viewer`, and find `CollectiveReduceV2`.
#
# Profile a few steps, of a job that may be lost: on every worker but the first, TensorFlow 2.21 can crash when a profile stops. `run_profiled` then starts the job again.
#
# ## Stopping together
#
# All workers have to stop at the same step. Keras' `EarlyStopping` and `ModelCheckpoint` go by the logs, in which every worker has the same numbers.

# %%
few = images[:192], labels[:192]  # few enough to learn by heart
unseen = data.test_images[:512], data.test_labels[:512]


def compiled(strategy, rate):
    with strategy.scope():
        model = cu.models.mlp([64], seed=0)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(rate), loss)
    return model


def fit_until_worse(folder):
    """Epochs trained, last weights, and those in this worker's best checkpoint."""
    cu.keras_multiworker.enable()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    model = compiled(strategy, rate=0.2)
    name = f"worker-{strategy.cluster_resolver.task_id}.weights.h5"
    best = str(Path(folder, name))  # distributed: a path of its own
    keep = {"save_best_only": True, "save_weights_only": True}
    stop = keras.callbacks.EarlyStopping(patience=1, restore_best_weights=True)
    callbacks = [stop, keras.callbacks.ModelCheckpoint(best, **keep)]
    how = {"epochs": 60, "verbose": 0, "callbacks": callbacks}
    how |= {"validation_data": unseen, "validation_batch_size": 256}
    history = model.fit(*few, 64, **how)
    weights = model.get_weights()
    model.load_weights(best)
    return len(history.epoch), weights, model.get_weights()


# %%
quiet = cu.LocalCluster(workers=2, output="quiet")
with tempfile.TemporaryDirectory() as folder:
    stopped = quiet.run(fit_until_worse, folder)
for number, (epochs, last, best) in enumerate(stopped):
    apart = cu.training.largest_difference(last, best)
    print(f"worker {number} stopped after {epochs} of 60 epochs; {apart} from its best")

# %% [markdown]
# Both stopped after the same epoch, both went back to the same best weights, and those are in both files.
#
# ## Stopping alone
#
# Now a worker that decides by something of its *own*: the loss over its own examples, a validation set on its own disk, its clock. Here worker 1 has wrong labels, so its own loss does not get better. Everything else is the same `EarlyStopping`.


# %%
class StopByMyOwn(keras.callbacks.EarlyStopping):
    def get_monitor_value(self, logs):
        return cu.callbacks.own_loss(self.model)  # this worker's examples alone


def fit_until(make_stop):
    cu.keras_multiworker.enable()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    worker = strategy.cluster_resolver.task_id
    x, y = images[worker:640:2], labels[worker:640:2]
    y = tf.roll(y, 1, axis=0) if worker == 1 else y  # the label of another picture
    mine = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(32, True)
    model = compiled(strategy, rate=0.05)
    batches = strategy.distribute_datasets_from_function(lambda context: mine)
    steps = {"steps_per_epoch": 10, "epochs": 12, "shuffle": False, "verbose": 0}
    stop = make_stop(model)
    history = model.fit(batches, **steps, callbacks=[stop])
    return len(history.epoch), getattr(stop, "means", None), model.get_weights()


# %% [markdown]
# ### Predict
#
# Worker 1 sees no progress and leaves after a few epochs. What does worker 0 do?

# %% tags=["predict"]
my_guess = None

# %%
alone = {"monitor": "own", "mode": "min", "patience": 2, "min_delta": 0.15}
left_behind = ""
for seconds in (6, 30, 150):  # a busy machine needs longer until worker 1 leaves
    waiting = cu.LocalCluster(workers=2, output="quiet", timeout=seconds)
    try:
        waiting.run(fit_until, lambda model: StopByMyOwn(**alone))
    except cu.cluster.ClusterTimeout as error:
        left_behind = error.seen
    if "has finished" in left_behind:
        break
print(left_behind)

# %% [markdown]
# It waits, in the next all-reduce, for a worker that is not coming. (The cluster noticed; on real machines the job hangs, or dies with an error that speaks of sockets.) Worse is possible: if the one that left goes on to *another* all-reduce, say an evaluation, the two meet in different ones. Then the shapes disagree and TensorFlow says so, or they agree, and it adds a loss to a gradient.
#
# ## The cure: decide from a number that all have
#
# Let all workers **reduce** their values first, and decide from the mean: the same number, the same decision, at the same step. `cu.callbacks.StopTogether` does that.

# %%
together = quiet.run(
    fit_until,
    lambda model: cu.callbacks.StopTogether(
        lambda logs: cu.callbacks.own_loss(model), patience=2, min_delta=0.15
    ),
)
for number, (epochs, means, _) in enumerate(together):
    shown = ", ".join(f"{mean:.2f}" for mean in means)
    print(f"worker {number} stopped after epoch {epochs} of 12, by the means {shown}")

# %% [markdown]
# **Whatever changes what a worker does next, must be decided from what is equal on all workers**: stopping, skipping a step, another learning rate.
#
# ## Exercise 14.1 · A report of each worker
#
# Return a callback for `fit` on the worker of this number, which trains on `examples` examples in each step. After each epoch it appends to its `rates` how many examples per second this worker had in the steps of that epoch: all their examples by all their seconds (`time.perf_counter`, from `on_train_batch_begin` to `on_train_batch_end`), without the very first step of the training. On worker 0 alone it also appends `self.model.metrics[0].result()`, a distributed metric, to its `values`, which stay empty elsewhere. About 22 lines.


# %% tags=["exercise"] exercise_id="14.worker_report"
def worker_report(examples, worker):
    """A callback with two lists, `rates` and `values`."""
    ...


# %%
cu.check("14.worker_report", worker_report)

# %% [markdown]
# ## Exercise 14.2 · Stop together
#
# This runs on every worker. `run_epoch()` trains one epoch and returns the loss on *this worker's own* validation data. `mean_of_all(number)` returns the mean of all workers' numbers; it is an all-reduce. Train until the mean loss has not been below its best for `patience` epochs in a row. Return how many epochs were trained, the same on all workers. About 10 lines.


# %% tags=["exercise"] exercise_id="14.train_until"
def train_until(run_epoch, mean_of_all, patience):
    """The number of epochs that were trained."""
    ...


# %%
cu.check("14.train_until", train_until)

# %% [markdown]
# ## Exercise 14.3 · Find the straggler
#
# `trace[worker]` is a list of steps; each step is a dictionary of milliseconds: `"data"`, `"compute"` and `"all-reduce"`, as one worker can measure them. In step 0 the functions were traced, and now and then a step is slow for no reason that matters. Return the number of the worker that all others wait for, and what it is slow at, `"data"` or `"compute"`: such as `(2, "data")`. About 8 lines.


# %% tags=["exercise"] exercise_id="14.straggler"
def straggler(trace):
    """(worker, "data" or "compute")"""
    ...


# %%
cu.check("14.straggler", straggler)

# %% [markdown]
# ## What must be true now


# %%
def share(worker, part):
    """How much of a worker's last steps is that part: a fraction of the medians."""
    steps = worker[-5:]
    values = [getattr(step, part) for step in steps]
    return cu.timing.median(values) / cu.timing.median([step.seconds for step in steps])


for part, steps in (("compute", slow_worker), ("waiting", slow_input)):
    for other in (steps[0], steps[2]):  # the others wait for the straggler
        assert share(steps[1], part) > 2 * share(other, part)
        assert share(steps[1], "exchange") < share(other, "exchange")
for worker in finite_input:  # everybody "waits for data": next has become a meeting
    assert share(worker, "waiting") > 2 * share(slow_input[0], "waiting")
for steps in in_fit:
    assert [step.number for step in steps if step.traced] == [0]
assert len(profiles) == 2 and all(len(steps) == 4 for steps in traces.values())
on_0, on_1 = (scalars[f"worker-{i}/train"]["batch_loss"] for i in (0, 1))
assert len(on_0) == 16 and on_0 == on_1
waits = [milliseconds(traces[f"worker-{i}"], "data") for i in (0, 1)]
assert waits[1] > waits[0]

# %%
distance = cu.training.largest_difference
(epochs_0, last_0, best_0), (epochs_1, last_1, best_1) = stopped
assert epochs_0 == epochs_1 < 60
assert distance(last_0, last_1) == distance(last_0, best_0) == 0
assert distance(best_0, best_1) == 0
assert "worker 1 has finished" in left_behind
(epochs_0, means_0, weights_0), (epochs_1, means_1, weights_1) = together
assert epochs_0 == epochs_1 < 12 and means_0 == means_1
assert distance(weights_0, weights_1) == 0

# %% [markdown]
# > **Take away.** All workers are as fast as the slowest, so look inside the step: the straggler is the one who does not wait. Measure on each worker what is its own, leave out what was traced, and read nothing alone that is a meeting. And stop, like everything else, together.
#
# Next: [15 · When is synchronous data parallelism the wrong tool?](15_other_strategies.ipynb)
