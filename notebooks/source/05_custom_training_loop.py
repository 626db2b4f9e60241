# %% [markdown]
# # 05 · Is distributed training the same training?
#
# You have all the parts: mirrored variables, an all-reduce, a loss that survives it. Now they become a whole training: ten classes of clothes, a convolutional network, metrics, checkpoints. On two replicas, is what comes out *the same model* that one device would have trained, or just one that looks as good?
#
# **After this lesson** you can write the whole loop yourself, prove that it is the same training, keep its epochs from stalling, and restore the result into a plain model so that you know it was restored.
#
# *45 minutes · builds on lesson 04 (the loss)*

# %%
import itertools
import tempfile
import time

import course_utils as cu
import keras
import tensorflow as tf

# %% tags=["parameters"]
profile = "laptop"

# %% [markdown]
# ## The data: ten kinds of clothes
#
# Fashion-MNIST, 28 × 28 grey pixels, from the course's own folder, checksums verified. The images stay *bytes* until they are in the network: a quarter of the memory, and of what moves.
#
# `laptop` is over in less than a minute. `full` takes all 60,000 images and ten epochs: minutes instead, and you have a model to keep. Nothing else differs.

# %%
SIZES = {"laptop": (6_000, 2_000, 3), "full": (60_000, 10_000, 10)}
images, tests, epochs = SIZES[profile]
BATCH = 128  # the *global* batch: what all replicas together see in one step
cu.devices.simulate(4)

data = cu.datasets.fashion_mnist().first(images, tests)
train = data.train_images, data.train_labels
test = data.test_images, data.test_labels

one_of_each = [int((data.train_labels == label).argmax()) for label in range(10)]
cu.plots.show(
    cu.plots.examples(data.train_images[one_of_each], cu.datasets.CLASS_NAMES),
    alt="Ten small grey pictures, one of each class, from T-shirt to ankle boot.",
)

# %% [markdown]
# ## The network
#
# Two convolutions, each with pooling, and two dense layers. The last gives **logits**: ten numbers without a softmax, which the loss brings along. The first layer scales the pixels to 0…1, so whoever restores the model later need not know how its data were prepared.

# %%
for layer in cu.models.cnn().layers:
    name = type(layer).__name__
    print(f"{name:<14}{layer.output.shape!s:<22}{layer.count_params():>8,} weights")

# %% [markdown]
# ### Predict
#
# The same first weights, the same batches, 20 steps of SGD with a learning rate of 0.1: once on one device, once on four replicas. How far apart, at the end, is the weight that differs most? `0`, `1e-8`, `1e-5` or `1e-3`? Write it down; we shall need some code to find out.

# %% tags=["predict"]
my_guess = None

# %% [markdown]
# ## Exercise 05.1 · One step on one replica
#
# Everything starts with the step that *one* replica takes on *its* share of the batch: forward, loss, gradients, update. Write it. The model gives logits, `labels` are whole numbers, and what you return is this replica's share of the loss (lesson 04). About 7 lines.


# %% tags=["exercise"] exercise_id="05.train_step"
def train_step(model, optimizer, images, labels, global_batch_size):
    """This replica's share of the loss, after one step of the optimizer."""
    ...


# %%
cu.check("05.train_step", train_step)

# %% [markdown]
# ## The step, on all replicas
#
# From here on the lesson uses `cu.training.train_step`, which does the same. Look for `# distributed:`. Five lines are all that a second device costs you.


# %%
def make_job(replicas, rate, dtype, batch_size):
    """Strategy, model, and a tf.function that takes one step on all replicas."""
    strategy = cu.devices.mirrored(replicas)
    with strategy.scope():  # distributed: variables made here are mirrored
        model = cu.models.cnn(seed=0, dtype=dtype)
        optimizer = keras.optimizers.SGD(rate)
        optimizer.build(model.trainable_variables)  # distributed: before the first step
    on_a_replica = cu.training.train_step(model, optimizer, batch_size)

    @tf.function
    def step(batch):
        shares = strategy.run(on_a_replica, args=batch)  # distributed: one share each
        return strategy.reduce("SUM", shares, axis=None)  # distributed: their sum

    return strategy, model, step


# %% [markdown]
# Build model *and* optimizer before the first distributed step, always. Variables that come into being inside `strategy.run` happen to work with the plain reduction that `devices.mirrored` uses. With MirroredStrategy's own, the same Adam that was not built ends in an `InvalidArgumentError` about a placeholder, which tells you nothing.
#
# ## Twenty steps


# %%
def twenty_steps(replicas, rate=0.1, dtype="float32", batch_size=32):
    """The weights after each of 20 steps, and how often the step was traced."""
    strategy, model, step = make_job(replicas, rate, dtype, batch_size)
    dataset = cu.training.training_data(train, batch_size, seed=1)
    with cu.training.iterators_end_at_once():  # what that is for, you see below
        # distributed: each batch is cut into shares
        batches = iter(strategy.experimental_distribute_dataset(dataset))
    weights = []
    for _ in range(20):
        step(next(batches))
        weights.append(model.get_weights())
    return weights, step.experimental_get_tracing_count()


one_device, _ = twenty_steps(1)
four_replicas, traces = twenty_steps(4)
fast = list(map(cu.training.largest_difference, four_replicas, one_device))
print(f"after step 1: {fast[0]:.0e}   after step 20: {fast[-1]:.0e}")

# %% [markdown]
# Four replicas add the same numbers in another order, and (a + b) + c differs from a + (b + c) in the last bit. But can *rounding* grow so much in 20 steps, or is there a mistake in the loop?
#
# ## Rounding, or a mistake?
#
# Two experiments tell. A **mistake** stays if you compute more precisely; rounding shrinks. So we repeat it in float64. And at a small learning rate, an error has less to grow on.


# %%
def apart(**how):
    """Largest difference between 1 device and 4 replicas, after each of 20 steps."""
    weights, _ = twenty_steps(1, **how)
    return list(map(cu.training.largest_difference, twenty_steps(4, **how)[0], weights))


slow = apart(rate=0.002)
precise = apart(dtype="float64")
cu.plots.show(
    cu.plots.differences(
        {
            "float32, learning rate 0.1": fast,
            "float32, learning rate 0.002": slow,
            "float64, learning rate 0.1": precise,
        },
        "largest |1 device − 4 replicas|",
        tolerance=1e-5,
        title="20 steps of SGD: the weight that differs most",
    ),
    alt=f"After 20 steps: {fast[-1]:.0e} apart in float32 at rate 0.1, {slow[-1]:.0e} "
    f"at rate 0.002, and {precise[-1]:.0e} in float64 at rate 0.1.",
)

# %% [markdown]
# In float64 the four replicas and the one device agree to some 15 digits: **it is the same training**. What grew in float32 was rounding. (A likely lever: a ReLU near zero decides by the last bit whether it passes a gradient on, and among millions a few decide differently.)
#
# Remember this when somebody compares losses in the third digit. And remember the test: SGD, few steps, a small learning rate, or float64. A wrong loss (lesson 04) fails it at step 1.
#
# ## How often does Python look?
#
# A `tf.function` runs your Python only to *trace* it into a graph. How often did that happen in 20 steps? And how often with a number that changes?

# %%
print("our step was traced", traces, "time in 20 steps")
seen_by_python = []


@tf.function
def how_many(steps):
    seen_by_python.append(steps)
    return steps + 0


for steps in (10, 20, 30):
    how_many(steps)
for steps in (10, 20, 30):
    how_many(tf.constant(steps))
print(len(seen_by_python), "traces for", seen_by_python)

# %% [markdown]
# Every new *Python* number is traced again; all tensors of one shape and type share a trace. A trace costs many steps. Numbers that change belong into tensors.
#
# ## The whole epoch in one graph
#
# Then Python need not be asked at every step: `tf.range` makes a loop that runs inside the graph. What it saves, we measure where it shows: on a tiny network, whose steps are almost all overhead.


# %%
def make_epoch(strategy, on_a_replica):
    """A tf.function that runs the steps of an epoch and returns their mean loss."""

    @tf.function
    def train_epoch(batches, steps):
        total = 0.0
        for _ in tf.range(steps):
            shares = strategy.run(on_a_replica, args=next(batches))
            total += strategy.reduce("SUM", shares, axis=None)
        return total / tf.cast(steps, tf.float32)

    return train_epoch


# %%
STEPS, EPOCHS = 120, 5
strategy = cu.devices.mirrored(2)
with strategy.scope():
    tiny, sgd = cu.models.linear(seed=0), keras.optimizers.SGD(0.1)
    sgd.build(tiny.trainable_variables)
tiny_step = cu.training.train_step(tiny, sgd, 32)
a_step = tf.function(lambda batch: strategy.run(tiny_step, args=batch))
an_epoch = make_epoch(strategy, tiny_step)
with cu.training.iterators_end_at_once():
    dataset = cu.training.training_data(train, 32)
    batches = iter(strategy.experimental_distribute_dataset(dataset))
a_step(next(batches)), an_epoch(batches, tf.constant(1))  # traced before the clock runs

start = time.perf_counter()
for _ in range(STEPS):
    a_step(next(batches))
middle = time.perf_counter()
an_epoch(batches, tf.constant(STEPS))
by_step, by_epoch = middle - start, time.perf_counter() - middle
print(f"Python asked each step: {1000 * by_step / STEPS:.2f} ms a step")
print(f"Python asked once:      {1000 * by_epoch / STEPS:.2f} ms a step")

# %% [markdown]
# A big network hides that, since it computes for much longer than Python talks. A small one on fast devices does not.
#
# ## Exercise 05.2 · Whole epochs
#
# Write the loop around the step, as plain Python. `step` is what one replica does: send it to all with `strategy.run(step, args=…)`, its arguments being what `next` gives. It returns a replica's share of the loss and updates the metric `accuracy` by itself. `dataset` is distributed already, and goes on for longer than your epochs. Return a list with one pair (mean loss of the steps, accuracy) an epoch. About 9 lines.


# %% tags=["exercise"] exercise_id="05.run_epochs"
def run_epochs(strategy, step, dataset, epochs, steps, accuracy):
    """A list of (loss, accuracy), one for each epoch."""
    ...


# %%
cu.check("05.run_epochs", run_epochs)

# %% [markdown]
# ## Where the seconds go at the end of an epoch
#
# Most tutorials write `for batch in distributed_dataset:` once an epoch. We time two things: from the start to the last step, and from the last step until the loop lets go.


# %%
def seconds(batches):
    """Seconds until the last step is done, and from there until the loop goes on."""
    start = time.perf_counter()
    for batch in batches:
        a_step(batch)
        last = time.perf_counter()
    return last - start, time.perf_counter() - last


def iterator_an_epoch(dataset):
    """Epochs as in most tutorials."""
    distributed = strategy.experimental_distribute_dataset(dataset.take(STEPS))
    return [seconds(distributed) for _ in range(EPOCHS)]


def one_iterator(dataset):
    """Epochs from one iterator over a repeated dataset, dropped at the end."""
    batches = iter(strategy.experimental_distribute_dataset(dataset.repeat()))
    times = [seconds(itertools.islice(batches, STEPS)) for _ in range(EPOCHS)]
    start = time.perf_counter()
    del batches
    dropped = time.perf_counter() - start
    steps, end = times[-1]
    return [*times[:-1], (steps, end + dropped)]


cu.epoch_end_stall.disable()  # as TensorFlow comes, also when you run this again
as_usual = tf.data.Dataset.from_tensor_slices(train).shuffle(1000).batch(32)
waits = {
    "an iterator an epoch": iterator_an_epoch(as_usual),
    "one iterator": one_iterator(as_usual),
}

# %% [markdown]
# ### Two threads that sleep
#
# Nothing computes while the loop waits. Every pipeline has a thread that looks for better settings and *sleeps in between*: 10 ms, then 20, 40, 80… Whoever drops the iterator may wait until it wakes by itself. There is one in *your* pipeline, which a public option switches off, and one for *each replica*, out of your reach: `cu.epoch_end_stall` reaches it. It changes private code of TensorFlow, so it refuses versions that it was not tested with.

# %%
cu.epoch_end_stall.enable()
without_tuning = tf.data.Options()
without_tuning.autotune.enabled = False
waits["an iterator an epoch, mended"] = iterator_an_epoch(
    as_usual.with_options(without_tuning)
)

waiting = {name: sum(end for _, end in times) for name, times in waits.items()}
told = [f"{name}: {spent:.1f} s of waiting" for name, spent in waiting.items()]
cu.plots.show(
    cu.plots.epoch_times(waits, title=f"{EPOCHS} epochs of {STEPS} steps"),
    alt="; ".join(told),
)
print(*told, sep="\n")

# %% [markdown]
# Each wait is a lottery. An iterator an epoch draws a ticket every epoch; one iterator a single one, when all is over, and now and then that is the longest. Mended, there is nothing to draw. The longer an epoch, the longer the sleep can be: change `EPOCHS` and `STEPS`, and run these cells again. (Grey differs too: a new iterator fills its shuffle buffer anew.)
#
# ## The whole job
#
# Two replicas, Adam with a cosine schedule, and metrics, made in the scope too: each replica counts its own examples, and reading adds the counts up. Test data pass through the replicas too, with `training=False`: a step returns nothing, it only counts. A short last batch does no harm.

# %%
train_steps = cu.training.steps_for(train, BATCH)
test_steps = cu.training.steps_for(test, BATCH)

with strategy.scope():
    model = cu.models.cnn(seed=0)
    schedule = keras.optimizers.schedules.CosineDecay(0.002, epochs * train_steps)
    optimizer = keras.optimizers.Adam(schedule)
    optimizer.build(model.trainable_variables)
    train_accuracy = keras.metrics.SparseCategoricalAccuracy()
    test_loss = keras.metrics.Mean()
    test_accuracy = keras.metrics.SparseCategoricalAccuracy()
on_a_replica = cu.training.train_step(model, optimizer, BATCH, train_accuracy)
train_epoch = make_epoch(strategy, on_a_replica)


def count_examples(images, labels):
    """One replica adds its share of a test batch to the metrics."""
    logits = model(images, training=False)
    test_loss.update_state(cu.training.per_example_loss(labels, logits))
    test_accuracy.update_state(labels, logits)


@tf.function
def evaluate(batches, steps):
    for _ in tf.range(steps):
        strategy.run(count_examples, args=next(batches))


# %% [markdown]
# ### An epoch, its line, its checkpoint
#
# Metrics go on counting until they are told to begin anew: `reset_state`, *before* each epoch. A checkpoint comes every second epoch **and at the end**. With `if epoch % 2 == 0` alone, an odd number of epochs would lose the last one: the best model, usually.


# %%
def one_epoch(number):
    """An epoch of training and evaluation, as a line of the history."""
    start = time.perf_counter()
    for metric in (train_accuracy, test_loss, test_accuracy):
        metric.reset_state()
    loss = train_epoch(train_batches, tf.constant(train_steps))
    evaluate(test_batches, tf.constant(test_steps))
    results = [float(m.result()) for m in (train_accuracy, test_loss, test_accuracy)]
    spent = time.perf_counter() - start
    return cu.training.Epoch(number, float(loss), *results, spent, train_steps * BATCH)


distributed = strategy.experimental_distribute_dataset
train_batches = iter(distributed(cu.training.training_data(train, BATCH)))
test_batches = iter(distributed(cu.training.evaluation_data(test, BATCH)))
folder = tempfile.TemporaryDirectory()
checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
save_after = {*range(2, epochs + 1, 2), epochs}
history = []
for number in range(1, epochs + 1):
    history.append(one_epoch(number))
    print(history[-1])
    if number in save_after:
        checkpoint.save(f"{folder.name}/ckpt")

# %%
cu.plots.show(
    cu.plots.learning_curves([vars(epoch) for epoch in history]),
    alt="Loss falls and accuracy rises with every epoch, on training and on test data.",
)

# %% [markdown]
# ## Restore, without any strategy
#
# A checkpoint holds plain numbers, not replicas. So a plain model, made outside of every scope and with other first weights, can take them.

# %%
plain = cu.models.cnn(seed=99)
_, before = cu.training.evaluate(plain, test)
path = tf.train.latest_checkpoint(folder.name)
status = tf.train.Checkpoint(model=plain).restore(path).expect_partial()
_, after = cu.training.evaluate(plain, test)
wanted = history[-1].test_accuracy
print(f"before {before:.2%}, after {after:.2%}, last epoch {wanted:.2%}")

# %% [markdown]
# ### And if there had been nothing to restore?
#
# `latest_checkpoint` gives `None` when it finds nothing, and `restore(None)` is content with that. `expect_partial`, which you see in many programs, only switches warnings off. One call tells:

# %% tags=["stable"]
another = cu.models.cnn(seed=7)
for name, found in (("the right folder", path), ("an empty folder", None)):
    status = tf.train.Checkpoint(model=another).restore(found).expect_partial()
    try:
        status.assert_existing_objects_matched()
        print(f"{name}: restored")
    except AssertionError as error:
        print(f"{name}: {error}")

# %% [markdown]
# ## Exercise 05.3 · Save, restore, and prove it
#
# Train with `train_epoch(epoch)`, counted from 1. Save `model` and `optimizer` below `folder` after every second epoch and after the last. Then restore the newest checkpoint into `plain`, and make sure that an error comes if not every variable of it was restored. About 8 lines.


# %% tags=["exercise"] exercise_id="05.train_and_restore"
def train_and_restore(train_epoch, epochs, model, optimizer, plain, folder):
    """None; `plain` has the weights of the last epoch, or an error is raised."""
    ...


# %%
cu.check("05.train_and_restore", train_and_restore)

# %% [markdown]
# ## What must be true now

# %%
# The same training: exact in float64, within 1e-5 in float32 at a small learning rate.
assert max(precise) < 1e-12 and max(slow) < 1e-5
assert max(precise) < max(fast)
assert traces == 1

# A new Python number is a new trace, a new tensor is not.
assert len(seen_by_python) == 4

# The restored model is the trained one, and nothing was restored from nothing.
assert cu.training.largest_difference(plain, model) == 0
assert abs(after - wanted) < 1e-4 and after > before + 0.5
assert len(checkpoint_epochs := sorted(save_after)) == int(path.rpartition("-")[2])
assert checkpoint_epochs[-1] == epochs

# What the job is for.
assert after >= {"laptop": 0.75, "full": 0.91}[profile]

# %% [markdown]
# > **Take away.** Distributed training is the same training, up to rounding, and twenty steps of SGD in float64 prove it. Reduce shares by sum, reset metrics by epoch, keep one iterator, save the last epoch, and let a restore prove itself.
#
# Next: [06 · A bigger batch: the same learning rate?](06_fit_and_the_global_batch.ipynb)
