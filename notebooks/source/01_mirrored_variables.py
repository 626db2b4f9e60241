# %% [markdown]
# # 01 · What does a mirrored variable mirror?
#
# Data parallelism stands on one promise: every replica works with *the same* weights. The promise is kept by **mirrored variables**: one name in your program, one copy on each device. But who keeps the copies equal? And are all of them equal?
#
# **After this lesson** you know what belongs in `scope()` and what `scope()` does not do, you can look at every copy of a variable, and you can say which copies agree, which do not, and whether that matters.
#
# *25 minutes · builds on lesson 00 (devices, replicas)*

# %%
import course_utils as cu
import keras
import numpy as np
import tensorflow as tf

tf.get_logger().setLevel("ERROR")  # many small runs here: no advice on re-tracing
strategy = cu.devices.mirrored(4)

# %% tags=["parameters"]
profile = "laptop"
STEPS = 20  # training steps
SHARE = 8  # images that each replica gets in a step

# %% [markdown]
# ## One variable, or four?
#
# The same line twice, once outside and once inside the strategy's scope.

# %% tags=["stable"]
alone = tf.Variable([1.0, 2.0])

with strategy.scope():
    mirrored = tf.Variable([1.0, 2.0])  # distributed: made in the scope

type(alone).__name__, type(mirrored).__name__

# %% [markdown]
# `experimental_local_results` takes a distributed value apart. Two small functions, for the whole lesson:


# %% tags=["stable"]
def copies(variable):
    """The copies of a variable on this machine, in the order of the replicas."""
    variable = variable.value if isinstance(variable, keras.Variable) else variable
    return strategy.experimental_local_results(variable)


def values(variable):
    """What is in the copies, as arrays."""
    return [copy.numpy() for copy in copies(variable)]


for name, variable in {"alone": alone, "mirrored": mirrored}.items():
    for copy in copies(variable):
        print(f"{name:>9}  on {copy.device.split('device:')[-1]}  {copy.numpy()}")

# %% [markdown]
# `alone` lives on one device. `mirrored` is a *container*: real variables, one on each device, behind one name. Everything that you make in the scope and that holds variables (a layer, an optimizer, a metric) is built of such containers.

# %% [markdown]
# ## Scope makes, run runs
#
# A common belief: what stands under `with strategy.scope():` runs on all devices. Ask the code itself who is executing it.
#
# ### Predict
#
# `who_am_i` answers with its replica's number. How many answers do you get when it is called **under `scope()`**: none, one or four?

# %% tags=["predict"]
my_guess = None


# %% tags=["stable"]
def who_am_i():
    me = tf.distribute.get_replica_context()
    return "nobody" if me is None else me.replica_id_in_sync_group


with strategy.scope():
    in_scope = who_am_i()

on_all = strategy.run(tf.function(who_am_i))
by_run = [int(me) for me in strategy.experimental_local_results(on_all)]
{"in scope": in_scope, "by run": by_run}

# %% [markdown]
# Under `scope()` the code ran **once**, and as *nobody*: no replica was at work. The scope only changes how variables are made. It is `strategy.run` that sends a function to all replicas.
#
# So the rule is short. **Make in the scope, compute in `run`.** Datasets and plain functions hold no variables and may be made anywhere.

# %% [markdown]
# ## Who keeps the copies equal?
#
# Put it to the test. Each replica writes its own number, 1 to 4, into the same variable. The variables differ only in their *aggregation*: what is to be done when replicas bring different values.

# %%
AGGREGATIONS = ("MEAN", "SUM", "ONLY_FIRST_REPLICA", "NONE")

with strategy.scope():
    boards = {
        name: tf.Variable(0.0, aggregation=tf.VariableAggregation[name])
        for name in AGGREGATIONS
    }
    boards["SUM, on read"] = tf.Variable(
        0.0,
        aggregation=tf.VariableAggregation.SUM,
        synchronization=tf.VariableSynchronization.ON_READ,
    )


# %% tags=["stable"]
@tf.function
def everyone_writes_its_number():
    def on_each_replica():
        me = tf.distribute.get_replica_context().replica_id_in_sync_group
        for board in boards.values():
            board.assign(tf.cast(me + 1, tf.float32))

    strategy.run(on_each_replica)


everyone_writes_its_number()
{name: float(board.numpy()) for name, board in boards.items()}  # as a reader is told

# %%
written = {name: values(board) for name, board in boards.items()}
cu.plots.show(
    cu.plots.copies_table(written, title="After each replica wrote its own number"),
    alt="Copies on four replicas: equal with MEAN, SUM and ONLY_FIRST_REPLICA, "
    "different with NONE and on read.",
)

# %% [markdown]
# Coloured boxes are copies that disagree; a grey bar is one value, four times.
#
# - With **MEAN**, **SUM**, **ONLY_FIRST_REPLICA** the replicas agree on one value at the moment of writing.
# - **On read**, each keeps its own and they are added up when somebody reads. Metrics work like this: no talking at each step, one sum at the end.
# - With **NONE**, the default, each copy takes what its replica brings. Nobody checks. And whoever reads the variable is told copy 0 and learns nothing of the others.
#
# TensorFlow does not keep the copies equal. **Equal writes do.**

# %% [markdown]
# ## A training step, copy by copy
#
# Keras makes weights with the default, `NONE`. Why do they not drift apart? We train a small network on Fashion-MNIST and look at every copy of everything.

# %%
data = cu.datasets.fashion_mnist()


def make_job(synchronized=False):
    """A model, its optimizer and a metric, all made in the scope."""
    keras.utils.set_random_seed(1)
    with strategy.scope():
        layers = [
            keras.Input((28, 28, 1)),
            keras.layers.Flatten(),
            keras.layers.Dense(32, name="hidden"),
            keras.layers.BatchNormalization(
                momentum=0.9, synchronized=synchronized, name="norm"
            ),
            keras.layers.ReLU(),
            keras.layers.Dropout(0.5, name="dropout"),
            keras.layers.Dense(10),
        ]
        model = keras.Sequential(layers)
        optimizer = keras.optimizers.SGD(0.02, momentum=0.9)
        optimizer.build(model.trainable_variables)
        mean_loss = keras.metrics.Mean()
    return model, optimizer, mean_loss


# %% [markdown]
# ### The step
#
# Each replica gets its own `SHARE` images a step. (Lesson 02 is about how a batch is cut; here we hand out the shares ourselves.) The step returns the gradient of the first kernel, so that we can look at that too.


# %%
def share(array, step):
    """For each replica its own slice of the data in this step."""
    n = strategy.num_replicas_in_sync

    def mine(context):
        start = (step * n + context.replica_id_in_sync_group) * SHARE
        return tf.constant(array[start : start + SHARE])

    return strategy.experimental_distribute_values_from_function(mine)


# %%
def train(model, optimizer, mean_loss):
    """The gradient of the first kernel in the last step, as each replica had it."""
    weights = model.trainable_variables

    @tf.function
    def on_each_replica(images, labels):
        with tf.GradientTape() as tape:
            logits = model(tf.cast(images, tf.float32) / 255, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_sum(losses) / (SHARE * strategy.num_replicas_in_sync)
        gradients = tape.gradient(loss, weights)
        # distributed: adds the gradients of all replicas up before it applies them
        optimizer.apply(gradients, weights)
        mean_loss.update_state(losses)
        return gradients[0]

    for step in range(STEPS):
        batch = share(data.train_images, step), share(data.train_labels, step)
        gradient = strategy.run(on_each_replica, args=batch)
    return gradient


job = make_job()
gradient = train(*job)


# %%
def look_at(job, gradient):
    """Every copy of what a job is made of, by name."""
    model, optimizer, mean_loss = job
    rows = {
        "gradient of a weight": gradient,
        "weight": model.get_layer("hidden").kernel,
        "momentum": optimizer.variables[2],
        "steps counted": optimizer.iterations,
        "metric: sum of losses": mean_loss.variables[0],
        "BatchNorm: moving mean": model.get_layer("norm").moving_mean,
    }
    return {name: values(variable) for name, variable in rows.items()}


held = look_at(job, gradient)
title = f"After {STEPS} steps (the entry that differs most)"
cu.plots.show(
    cu.plots.copies_table(held, title=title),
    alt="Gradient, metric and BatchNorm mean differ between the replicas; weight, "
    "momentum and step count are equal.",
)

# %% [markdown]
# Read the table from the top. The **gradients differ**: each replica saw other images. `optimizer.apply` adds them up over the replicas *before* it touches a variable, so every copy of the weight gets the same update, and so does every copy of the momentum. Equal start, equal updates: **equal weights, though no step ever sent a weight.** What travels is gradients.
#
# The **metric** differs on purpose and is added up on reading. And the **BatchNorm mean**? Each replica wrote the mean of its own images.

# %% [markdown]
# ## One image, four answers
#
# BatchNormalization uses its moving mean in evaluation. Four different means are four different models. Show the same 1,000 test images to each replica:


# %%
def predictions(model):
    """Logits by replica of the first 1,000 test images: (replicas, 1000, 10)."""
    images = tf.constant(data.test_images[:1000] / 255, tf.float32)
    logits = strategy.run(tf.function(lambda: model(images, training=False)))
    return np.stack(values(logits))


def disagreements(model):
    """How many of the images are not given the same class by all replicas."""
    classes = predictions(model).argmax(axis=-1)
    return int((classes != classes[0]).any(axis=0).sum())


by_plain = disagreements(job[0])
by_plain

# %% [markdown]
# So many of the 1,000 images change their class with the replica that they happen to land on. And whoever reads or saves the model gets copy 0 of the statistics, in which three quarters of the training images left no trace.
#
# The cure is one argument. `synchronized=True` makes every replica normalise with the mean of the *whole* batch, at the price of an all-reduce in each BatchNormalization layer and step:

# %%
cured = make_job(synchronized=True)
moving_means = {
    "plain": held["BatchNorm: moving mean"],
    "synchronized": look_at(cured, train(*cured))["BatchNorm: moving mean"],
}
unit = np.ptp(moving_means["plain"], axis=0).argmax()  # the one that differs most
rows = {name: np.array(means)[:, unit] for name, means in moving_means.items()}
cu.plots.show(
    cu.plots.copies_table(rows, title="Moving mean of one unit"),
    alt="The plain moving mean differs between four replicas, the synchronised one "
    "is equal on all.",
)
by_synchronized = disagreements(cured[0])
{"images that change class": by_synchronized}

# %% [markdown]
# ## What should differ, and does not
#
# Dropout wants the opposite: chance, and independent chance on each replica. A Keras layer draws from a seed that is a variable. It was made in the scope, so it is mirrored; all copies are equal; so are all masks.

# %%
dropout = job[0].get_layer("dropout")
ones = tf.ones(24)


@tf.function
def masks():
    def on_each_replica():
        return dropout(ones, training=True) > 0, tf.nn.dropout(ones, 0.5) > 0

    return strategy.run(on_each_replica)


by_keras, by_tensorflow = map(values, masks())
cu.plots.show(
    cu.plots.masks({"keras.layers.Dropout": by_keras, "tf.nn.dropout": by_tensorflow}),
    alt="Keras' Dropout layer drops the same units on all four replicas, "
    "tf.nn.dropout others on each.",
)

# %% [markdown]
# Left, one mask four times: every replica switches off the same units. Training still works, but with less of the noise that you asked for. `tf.nn.dropout` draws on each replica for itself. Lesson 09 gives each replica a mask of its own.
#
# **Mirrored means equal, for better and for worse.**

# %% [markdown]
# ## Exercise 01.1 · The right things in scope
#
# Three recipes are given as functions: `make_model()`, `make_optimizer()`, `make_metric()`. Use them so that everything that holds variables has a copy on each replica, the optimizer's momentum included: build it with `optimizer.build(model.trainable_variables)`. Return model, optimizer and metric. About 5 lines.


# %% tags=["exercise"] exercise_id="01.build_in_scope"
def build_in_scope(strategy, make_model, make_optimizer, make_metric):
    """Model, optimizer and metric, with copies on each replica."""
    ...


# %%
cu.check("01.build_in_scope", build_in_scope)

# %% [markdown]
# ## Exercise 01.2 · Which copies stay equal?
#
# Another job on 4 replicas: Adam instead of SGD, two BatchNormalization layers, one of them with `synchronized=True`, a `Mean` metric of the losses. Two variables of our own, made in the scope: `images seen` (aggregation SUM; each replica adds how many images it got) and `brightest pixel` (no aggregation; each replica writes the largest value in its share).
#
# After a few steps: which are equal on all replicas? `True` for equal, `False` for not.

# %% tags=["exercise"] exercise_id="01.stays_equal"
stays_equal = {
    "weight": None,
    "Adam's momentum": None,
    "metric's total": None,
    "BatchNorm mean": None,
    "synchronised BatchNorm mean": None,
    "images seen": None,
    "brightest pixel": None,
}

# %%
cu.check("01.stays_equal", stays_equal)

# %% [markdown]
# ## Exercise 01.3 · How far apart?
#
# A tool that you will want in every distributed job. `function` is something that a replica can run, and gives a tensor. Let **every replica** run it, and return the largest difference that any entry has between any two replicas: 0 if all agree. About 3 lines.


# %% tags=["exercise"] exercise_id="01.largest_difference"
def largest_difference(strategy, function):
    """How far the results of the replicas are apart at most, as one number."""
    ...


# %%
cu.check("01.largest_difference", largest_difference)

# %% [markdown]
# ## What must be true now


# %%
import tempfile


def apart(values):
    return np.ptp(np.stack(values), axis=0).max()


assert len(copies(alone)) == 1
assert len(copies(mirrored)) == strategy.num_replicas_in_sync
assert in_scope == "nobody"
assert job[0].get_layer("hidden").kernel.aggregation == "none"
for name in ("weight", "momentum", "steps counted"):
    assert apart(held[name]) == 0, name
for name in ("gradient of a weight", "metric: sum of losses", "BatchNorm: moving mean"):
    assert apart(held[name]) > 0, name
assert by_plain > 0 and by_synchronized == 0
assert apart(moving_means["synchronized"]) == 0
assert apart(np.int32(by_keras)) == 0 and apart(np.int32(by_tensorflow)) == 1

with tempfile.TemporaryDirectory() as folder:  # what a saved model holds is copy 0
    job[0].save(f"{folder}/job.keras")
    saved = keras.models.load_model(f"{folder}/job.keras").get_layer("norm")
np.testing.assert_array_equal(saved.moving_mean, held["BatchNorm: moving mean"][0])

# %% [markdown]
# > **Take away.** A mirrored variable is one copy a replica, equal as long as all replicas write the same. Gradients are made the same before they are applied; statistics are not, unless you ask.
#
# Next: [02 · How is one batch cut over replicas?](02_where_does_the_batch_go.ipynb)
