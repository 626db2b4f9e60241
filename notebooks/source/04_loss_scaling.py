# %% [markdown]
# # 04 · Why is my loss 4 times too big?
#
# Four replicas share one batch. Each takes the mean loss of *its* examples, each computes a gradient, and the gradients are added up. Nothing crashes and the loss falls, yet the model is not the one that a single device would have trained.
#
# **After this lesson** you can write a loss that gives the same model on 1, 2 or 4 replicas, with an L2 term and with a short last batch too, and you can prove it.
#
# *35 minutes · builds on lesson 03 (all-reduce)*

# %%
import course_utils as cu
import keras
import numpy as np
import tensorflow as tf

tf.get_logger().setLevel("ERROR")  # many small runs here: no advice on re-tracing
cu.devices.simulate(4)
cu.epoch_end_stall.enable()  # distributed datasets end at once; lesson 05 shows why

# %% tags=["parameters"]
profile = "laptop"

# %% [markdown]
# ## The smallest case there is
#
# One weight, eight examples, a squared error. Small enough to do in your head.

# %%
x = np.array([1, 1, 2, 2, 3, 3, 4, 4], np.float32)
y = 2 * x  # the weight that we look for is 2


def squared_error(weight, x, y):
    return (weight * x - y) ** 2


# %% [markdown]
# ### Predict
#
# Start at weight 0. On one device the mean loss over the eight examples is 30. Now two replicas get four examples each, take their own mean, and the two results are **summed**. What comes out?
#
# Write your guess down before you run the next cell: `15`, `30` or `60`?

# %% tags=["predict"]
my_guess = None


# %% tags=["stable"]
def loss_on(replicas, per_replica_loss):
    """Sum over `replicas` of what each makes of its share of the batch, at weight 0."""
    shares = zip(np.split(x, replicas), np.split(y, replicas), strict=True)
    return sum(per_replica_loss(squared_error(0.0, xs, ys)) for xs, ys in shares)


{n: float(loss_on(n, np.mean)) for n in (1, 2, 4)}

# %% [markdown]
# It doubles with every doubling of the replicas: each mean already stands for a whole batch, and the sum counts it once per replica.
#
# The cure is to divide by what the *whole* step saw, the **global batch**:

# %% tags=["stable"]
{n: float(loss_on(n, lambda errors: errors.sum() / len(x))) for n in (1, 2, 4)}

# %% [markdown]
# ## The same with real images
#
# Now Fashion-MNIST, a layer of ten neurons, and `MirroredStrategy`. Three formulas for what a replica makes of the errors of its own examples; on one device, all three are the same.

# %%
STEPS, BATCH, LEARNING_RATE = 30, 64, 0.05
data = cu.datasets.fashion_mnist()
images = data.train_images[: STEPS * BATCH].reshape(-1, 784) / np.float32(255)
labels = data.train_labels[: STEPS * BATCH]
batches = tf.data.Dataset.from_tensor_slices((images, labels)).batch(BATCH)


def replicas_here():
    return tf.distribute.get_strategy().num_replicas_in_sync


FORMULAS = {
    "mean of my share": lambda errors: tf.reduce_mean(errors),
    "sum / global batch": lambda errors: tf.reduce_sum(errors) / BATCH,
    "divided twice": lambda errors: tf.reduce_sum(errors) / BATCH / replicas_here(),
}


# %%
def make_step(strategy, model, optimizer, formula):
    """The function that trains one step on all replicas and returns the loss."""

    def on_each_replica(images, labels):
        with tf.GradientTape() as tape:
            loss = formula(cu.training.per_example_loss(labels, model(images)))
        weights = model.trainable_variables
        gradients = tape.gradient(loss, weights)
        optimizer.apply(gradients, weights)  # distributed: adds up over the replicas
        return loss

    @tf.function
    def step(batch):
        losses = strategy.run(on_each_replica, args=batch)
        return strategy.reduce("SUM", losses, axis=None)

    return step


# %%
SGD, Adam = keras.optimizers.SGD, keras.optimizers.Adam


def train(replicas, formula, optimizer=SGD, rate=LEARNING_RATE, batches=batches):
    """The loss after each step, true (over 1024 images) and reported; the weights."""
    strategy = cu.devices.mirrored(replicas)
    with strategy.scope():
        layer = keras.layers.Dense(10, kernel_initializer="zeros")
        model = keras.Sequential([keras.Input([784]), layer])
        update = optimizer(rate)
        update.build(model.trainable_variables)
    step = make_step(strategy, model, update, formula)
    true, reported = [], []
    # distributed: cuts each batch into shares
    for batch in strategy.experimental_distribute_dataset(batches):
        reported.append(float(step(batch)))
        errors = cu.training.per_example_loss(labels[:1024], model(images[:1024]))
        true.append(float(tf.reduce_mean(errors)))
    weights = np.concatenate([part.numpy().ravel() for part in model.weights])
    return {"loss": true, "reported": reported, "weights": weights}


# %%
COUNTS = {1: "1 replica", 2: "2 replicas", 4: "4 replicas"}


def train_all(formulas, **how):
    return {
        (name, n): train(n, formulas[name], **how) for name in formulas for n in COUNTS
    }


runs = train_all(FORMULAS)
one_device = runs["sum / global batch", 1]
panels = {name: {COUNTS[n]: runs[name, n]["loss"] for n in COUNTS} for name in FORMULAS}
YLABEL = "loss on 1024 images (nats)"
cu.plots.show(
    cu.plots.curves_over_reference(panels, one_device["loss"], YLABEL),
    alt="Loss over 30 steps on 1, 2 and 4 replicas. Mean of my share: three different "
    "curves, and with 4 replicas the loss jumps. Sum over global batch: one curve. "
    "Divided twice: slower with each replica.",
)

# %% [markdown]
# Left: three replica counts, three different trainings. Right: the more replicas, the slower. Middle: the three lines lie on each other and on the grey line of the one device. **That is what "the same training" means, and it is the only test worth having.**
#
# ## How far off is the model?
#
# A curve can hide a lot. Compare the weights, number by number, with those of the one device.


# %%
def show_distances(runs, formulas, reference, alt):
    """Largest weight difference from `reference`, shape (formulas, replica counts)."""
    weights = [[runs[name, n]["weights"] for n in COUNTS] for name in formulas]
    distance = np.abs(weights - reference["weights"]).max(axis=-1)
    label, columns = "largest weight difference\nfrom one device", list(COUNTS.values())
    figure = cu.plots.heat_map(distance, list(formulas), columns, label, log=True)
    cu.plots.show(figure, alt=alt)
    return distance


alt = "On several replicas only sum / global batch stays at rounding errors."
distance = show_distances(runs, FORMULAS, one_device, alt)

# %% [markdown]
# What the middle row shows is rounding; the two others are another model.
#
# The error is no mystery. A gradient that is 4 times too big is a step that is 4 times too big: you train with **4 times the learning rate that you asked for**, and one device with that rate makes the very same model. Their largest weight difference:

# %%
too_fast = train(1, FORMULAS["sum / global batch"], rate=4 * LEARNING_RATE)
float(np.abs(too_fast["weights"] - runs["mean of my share", 4]["weights"]).max())

# %% [markdown]
# ## Who divides, you or Keras?
#
# "Divided twice" sounds silly, and happens all the time. A Keras loss knows that it runs on a replica. Here each of four replicas computes a mean loss over two examples; one device would get ln 10 ≈ 2.3.

# %% tags=["stable"]
keras_loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def on_each_replica():
    return keras_loss(tf.constant([0, 1]), tf.zeros([2, 10]))


on_four = cu.devices.mirrored(4).run(tf.function(on_each_replica)).values
print("one device  ", round(float(on_each_replica()), 4))
print("per replica ", [round(float(loss), 4) for loss in on_four])

# %% [markdown]
# Keras 3 has already divided by the number of replicas. So: either let Keras do it (as `fit` does; right where all shares are equally large), or ask for `reduction=None` and divide yourself, by the global batch. Not both.

# %% [markdown]
# ## Why nobody notices
#
# Most people train with Adam. Here is the wrong formula once more, on 4 replicas, with SGD and with Adam.


# %%
mean_of_my_share = FORMULAS["mean of my share"]
adam = {n: train(n, mean_of_my_share, Adam, rate=0.001) for n in (1, 4)}

name, sgd_4 = "4 replicas, mean of my share", runs["mean of my share", 4]
panels = {"SGD": {name: sgd_4["loss"]}, "Adam": {name: adam[4]["loss"]}}
references = {"SGD": one_device["loss"], "Adam": adam[1]["loss"]}
cu.plots.show(
    cu.plots.curves_over_reference(panels, references, YLABEL),
    alt="The wrong formula on 4 replicas. With SGD its loss is far from that of one "
    "device; with Adam the two are one line.",
)

# %% [markdown]
# Adam divides each gradient by its own size: 4 times too big and just right take nearly the same step. **That it trains with Adam proves nothing.** The mistake waits until something holds the gradient against a fixed number, as clipping does, or until someone tries SGD.
#
# So test a loss on SGD, by equality.

# %% [markdown]
# ## Exercise 04.1 · A loss that survives any number of replicas
#
# Write `compute_loss`. It gets the errors of *this replica's* examples and the size of the *global* batch, and returns what this replica contributes. About 1 line.


# %% tags=["exercise"] exercise_id="04.compute_loss"
def compute_loss(per_example_loss, global_batch_size):
    """This replica's part of the mean loss over the global batch."""
    ...


# %%
cu.check("04.compute_loss", compute_loss)

# %% [markdown]
# ## What every replica has whole
#
# An L2 term does not depend on the examples: every replica holds the same weights, so each computes the same term, in full. What does the sum over the replicas make of it?


# %% tags=["stable"]
def l2_term():
    weights, strength = tf.constant([1.0, 2.0]), 0.1
    return strength * tf.reduce_sum(weights**2)  # 0.5


def summed_over(replicas, term):
    strategy = cu.devices.mirrored(replicas)
    total = strategy.reduce("SUM", strategy.run(tf.function(term)), axis=None)
    return round(float(total), 4)


{n: summed_over(n, l2_term) for n in COUNTS}

# %% [markdown]
# ## Exercise 04.2 · Add an L2 term
#
# Return this replica's part of: mean loss over the global batch **plus** `strength` times the sum of all squared `weights` (a list of tensors). About 3 lines.


# %% tags=["exercise"] exercise_id="04.l2_loss"
def loss_with_l2(per_example_loss, weights, global_batch_size, strength):
    """This replica's part of the loss, L2 term included."""
    ...


# %%
cu.check("04.l2_loss", loss_with_l2)

# %% [markdown]
# ## The last batch is short
#
# 18 examples in batches of 16 leave 2 for the last step. Who gets them, with four replicas?

# %%
strategy = cu.devices.mirrored(4)
numbers = strategy.experimental_distribute_dataset(tf.data.Dataset.range(18).batch(16))
seen = [
    [part.numpy().tolist() for part in strategy.experimental_local_results(batch)]
    for batch in numbers
]
cu.plots.show(
    cu.plots.strips(seen),
    alt="Step 0: four examples for each of four replicas. "
    "Step 1: one each for the first two, none for the others.",
)

# %% [markdown]
# ### Predict
#
# Two replicas have nothing to take a mean of. On the last step, what loss does "mean of my share" report, and what becomes of the weights? And what does "sum / 16" do, on a batch of 2?

# %% tags=["predict"]
my_guess_about_the_short_batch = None

# %%
SHORT = {
    "mean of my share": lambda errors: tf.reduce_mean(errors),
    "sum / 16": lambda errors: tf.reduce_sum(errors) / 16,
    "sum / examples there are": cu.training.average_loss_over_present,
}
eighteen = tf.data.Dataset.from_tensor_slices((images[:18], labels[:18])).batch(16)
short = train_all(SHORT, batches=eighteen)

print("loss of the last step, as reported on", ", ".join(COUNTS.values()))
for name in SHORT:
    print(f"{name:25}", [round(short[name, n]["reported"][-1], 3) for n in COUNTS])
alt = "On several replicas only sum / examples there are stays at rounding errors."
short_distance = show_distances(short, SHORT, short["mean of my share", 1], alt)

# %% [markdown]
# - **Mean of my share:** the mean of nothing is **NaN**. With 4 replicas the reported loss is NaN, and so is every average that you take of it. The weights are *not* NaN, an empty share has an empty gradient, they are just wrong.
# - **Sum / 16:** the same on every number of replicas, and no NaN. But the two last examples count for as little as in a batch of 16; a single device, taking the mean, steps 8 times as far.
# - **Sum / examples there are:** exact. How can a replica know how many there are?

# %% [markdown]
# ## Exercise 04.3 · Survive the last short batch
#
# No batch size is given this time. Return this replica's part of the mean over all examples that are *really there*, on whatever replica. Some replica may hold none. Lesson 03 has what you need. About 3 lines.


# %% tags=["exercise"] exercise_id="04.uneven_batch"
def uneven_loss(per_example_loss):
    """This replica's part of the mean loss over the examples of all replicas."""
    ...


# %%
cu.check("04.uneven_batch", uneven_loss)

# %% [markdown]
# ## What must be true now

# %%
# On one device all formulas are right; "sum / global batch" is on any number of
# replicas, and "sum / examples there are" with a short batch, too.
np.testing.assert_allclose(distance[:, 0], 0, atol=1e-6)
np.testing.assert_allclose(distance[1], 0, atol=1e-6)
np.testing.assert_allclose(short_distance[2], 0, atol=1e-6)
assert (distance[[0, 2], 1:] > 0.01).all(), "the others train another model"

# The mean of a share is 4 times the learning rate, and Adam hides it.
np.testing.assert_allclose(sgd_4["weights"], too_fast["weights"], atol=1e-5)
hidden = np.abs(adam[4]["weights"] - adam[1]["weights"]).max()
assert hidden < distance[0, 2] / 20

# A Keras loss on a replica is already this replica's share.
np.testing.assert_allclose(sum(on_four), on_each_replica(), rtol=1e-6)

# A mean over no examples: NaN is reported, and the weights go on, wrong.
nothing = short["mean of my share", 4]
assert np.isnan(nothing["reported"][-1]) and np.isfinite(nothing["weights"]).all()

# A fixed divisor is the same everywhere, and takes too small a step.
assert np.ptp(short_distance[1]) < 1e-6
last = [short[name, 1]["reported"][-1] for name in ("mean of my share", "sum / 16")]
np.testing.assert_allclose(last[0] / last[1], 8, rtol=1e-5)

# %% [markdown]
# > **Take away.** Replicas add up. Divide by the global batch, once, and prove it by equality with one device, on SGD.
#
# Next: [05 · Is distributed training the same training?](05_custom_training_loop.ipynb)
