# %% [markdown]
# # 06 · A bigger batch: the same learning rate?
#
# Sixteen times the devices, sixteen times the global batch: an epoch is over in a sixteenth of the updates. You hoped for the same model in less time. What you get is another training, unless you change more than the batch.
#
# **After this lesson** you can train with `Model.fit` on several replicas, choose the learning rate for a global batch, make a large batch from small ones, and you know what mixed precision does, and what it does *not* do, for the network between your machines.
#
# *45 minutes · builds on lessons 04 (the loss) and 05 (the loop)*

# %%
import tempfile
from pathlib import Path

import course_utils as cu

cu.cluster.warm_up(wait=False)  # the workers-to-be import TensorFlow meanwhile
import keras
import numpy as np
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

# %% tags=["parameters"]
profile = "laptop"

# %% [markdown]
# ## `fit`, and which batch it means
#
# With `fit` there is no loop to write. Model, optimizer and metrics are made in the scope, and that is all. One thing is easily misread: **`batch_size` in `fit` is the global batch.** On two replicas a batch of 64 is 32 for each.
#
# (`keras_multiworker` mends `fit` on replicas: there is more of it below, and in lesson 09.)

# %%
SEEDS = {"laptop": [0], "full": range(5)}[profile]  # full: means of five trainings
tf.get_logger().setLevel("ERROR")  # many small runs here: no advice on re-tracing
cu.plots.style()
cu.devices.simulate(2)
cu.keras_multiworker.enable()
data = cu.datasets.fashion_mnist().first(8192, 2000)
images, labels = data.train_images, data.train_labels
test = data.test_images, data.test_labels
one_device, two_replicas = tf.distribute.get_strategy(), cu.devices.mirrored(2)


def compiled(strategy, optimizer, make=lambda: cu.models.mlp([64], seed=0)):
    """A model ready for `fit`; `optimizer` is a function that makes its optimizer."""
    with strategy.scope():  # distributed: all variables
        model = make()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer(), loss, metrics=["accuracy"])
    return model


fitted = [
    compiled(s, lambda: keras.optimizers.SGD(0.04)) for s in (one_device, two_replicas)
]
for model in fitted:
    model.fit(images[:1280], labels[:1280], 64, shuffle=False, verbose=0)
updates = [int(model.optimizer.iterations.numpy()) for model in fitted]
same = cu.training.largest_difference(*fitted)
print(f"updates: {updates}, largest difference between the models: {same:.0e}")

# %% [markdown]
# As many updates on two replicas as on one, and the same model: 64 was the global batch both times.
#
# ## Larger batches
#
# ### Predict
#
# A batch of 32 and a learning rate of 0.04 work well. Now 128, then 512, with **the same rate** and the same four epochs. After them, the accuracy on test images will be *higher* (smoother gradients), *equal* (the same examples seen) or *lower*?

# %% tags=["predict"]
my_guess = None


# %%
EPOCHS, RATE, BATCHES = 4, 0.04, (32, 128, 512)
# One device gives the same model as two replicas, as you saw, and sooner on a laptop.
model = compiled(one_device, lambda: keras.optimizers.SGD(RATE))


class EachUpdate(keras.callbacks.Callback):
    """Sets the learning rate of every update: `rate_at(0)`, `rate_at(1)`, …"""

    def __init__(self, rate_at):
        super().__init__()
        self.rate_at, self.updates = rate_at, 0

    def on_train_batch_begin(self, batch, logs=None):
        self.model.optimizer.learning_rate = self.rate_at(self.updates)
        self.updates += 1


def accuracies(batch, rate_at):
    """Test accuracy after each epoch, a mean over the seeds."""
    curves = []
    for seed in SEEDS:  # plain SGD remembers nothing: the model can start anew
        model.set_weights(cu.models.mlp([64], seed=seed).get_weights())
        keras.utils.set_random_seed(seed)  # the order of the examples
        how = {"validation_data": test, "validation_batch_size": 1000, "verbose": 0}
        rates = EachUpdate(rate_at)
        kept = model.fit(images, labels, batch, EPOCHS, callbacks=[rates], **how)
        curves.append(kept.history["val_accuracy"])
    return np.mean(curves, axis=0)


# %%
runs = {"constant": {b: accuracies(b, lambda update: RATE) for b in BATCHES}}
cu.plots.show(
    cu.plots.accuracy_by_examples_and_updates(runs, len(labels)),
    alt="Against examples, the larger batch is lower throughout. Against updates, the "
    "three curves lie on one line: what counts is the number of updates.",
)

# %% [markdown]
# **Lower.** Left, after the same examples: the larger the batch, the further behind. Right, after the same *updates*: nearly one line. An update is a step of a certain length, and sixteen times the batch makes a sixteenth of the steps. That each was computed from more examples hardly helps.
#
# ## Longer steps
#
# k times fewer steps: let each be k times as long. That is the **linear scaling rule** (Goyal et al., 2017), over the *global* batch.
#
# The same authors met its limit: at the start a long step overshoots. Hence a **warm-up** in equal increments. Towards the end small steps settle: a **cosine** takes the rate back to 0 (Loshchilov and Hutter, 2016). Which of the two helps here?

# %%
peaks = {b: cu.schedules.linear_scaling(RATE, b, base_batch=32) for b in BATCHES}
total = EPOCHS * cu.training.steps_for((images, labels), 512)
rate_at = {
    "constant": lambda update: RATE,
    "scaled": lambda update: peaks[512],
    "cosine": cu.schedules.WarmupCosine(peaks[512], 0, total),
    "warm-up + cosine": cu.schedules.WarmupCosine(peaks[512], total // 4, total),
}
rates = {name: [at(u) for u in range(total)] for name, at in rate_at.items()}
cu.plots.show(
    cu.plots.schedules(rates, title="Four schedules for a batch of 512"),
    alt=f"A constant rate of {RATE}, one of {peaks[512]:.2g}, one that falls from "
    f"{peaks[512]:.2g} to 0 along a cosine, and one that first rises to it in a "
    "quarter of the updates.",
)

# %%
runs["scaled"] = {b: accuracies(b, lambda update, b=b: peaks[b]) for b in (128, 512)}
for name in ("cosine", "warm-up + cosine"):
    runs[name] = {512: accuracies(512, rate_at[name])}
last = {name: {b: 100 * a[-1] for b, a in by.items()} for name, by in runs.items()}
for name, by_batch in last.items():
    print(f"{name:18}", *(f"{b}: {a:.1f} %  " for b, a in by_batch.items()))

# %%
cu.plots.show(
    cu.plots.accuracy_by_examples_and_updates(runs, len(labels)),
    alt="Batch 128 with the scaled rate comes near batch 32. 512 falls behind with "
    "the scaled rate, comes back with a cosine, but stays far below.",
)

# %% [markdown]
# ## What the rule buys, and where it ends
#
# At 128 the scaled rate gets from the same examples nearly what 32 got, with **a quarter of the updates**. That is what makes more devices worth while.
#
# At 512 it is too much: worse than no scaling. The **cosine** brings it back, in the later epochs, when steps become short. The warm-up hardly matters *here*; a shallow network recovers from a bad start. (Goyal et al. needed it for a ResNet of 50 layers and batches of 8,192.) And a few dozen updates are too few, whatever their rate: every task has a batch beyond which examples are wasted. (One small network and one seed. `profile = "full"` averages five.)

# %% [markdown]
# ## Exercise 06.1 · A learning rate for each update
#
# `base_rate` is right for a global batch of 256. Scale it for the batch of all replicas together. From 0 at step 0 rise in equal increments, so that step `warmup_steps` (perhaps 0) has exactly that peak; then half a cosine down to 0 at `total_steps`, and 0 from there on. Return a float, not a tensor. About 6 lines.


# %% tags=["exercise"] exercise_id="06.learning_rate"
def learning_rate(step, base_rate, per_replica, replicas, warmup_steps, total_steps):
    """The learning rate of one update, counted from 0."""
    ...


# %%
cu.check("06.learning_rate", learning_rate)

# %% [markdown]
# ## A batch larger than the memory
#
# You want the batch of a cluster and have one machine. **Gradient accumulation**: take the large batch in parts, add their gradients up, and update once.
#
# Keras has it as `gradient_accumulation_steps`. We let it make a batch of 512 on one device, first from four equal parts, then from three of 150 and one of 62. And we note the rates that a schedule gives it.


# %%
def one_pass(part, parts=None, rate=0.04, count=512):
    """A linear model after one pass over the examples, and the rate at each part."""
    make, rates = lambda: cu.models.linear(seed=0), []
    optimizer = keras.optimizers.SGD(rate, gradient_accumulation_steps=parts)
    model = compiled(one_device, lambda: optimizer, make)
    note = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: rates.append(
            float(optimizer.learning_rate)
        )
    )
    how = {"shuffle": False, "verbose": 0, "callbacks": [note]}
    model.fit(images[:count], labels[:count], part, **how)
    return model, rates


apart = cu.training.largest_difference
at_once, _ = one_pass(512)
even, uneven = (apart(at_once, one_pass(part, 4)[0]) for part in (128, 150))
print(f"four parts of 128: {even:.0e}   150 + 150 + 150 + 62: {uneven:.0e}")
schedule = cu.schedules.WarmupCosine(1.0, 8, 32)
_, noted = one_pass(128, 4, schedule, count=2048)
print("rates at 4 updates:", np.round(noted[3::4], 2))
print("wanted:            ", np.round([schedule(update) for update in range(4)], 2))

# %% [markdown]
# **Equal parts: the same update.** Keras takes the mean of the parts' means, so a short part counts as much as a full one: *a mean of unequal means*. And the schedule counts *parts* as if they were updates: it is four times too fast, although `optimizer.iterations` counts updates.
#
# On replicas, plain Keras does not even start. In a fresh process, without the mend:


# %%
def plain_keras(images, labels):
    cu.devices.simulate(2)
    with cu.devices.mirrored(2).scope():
        model = cu.models.linear(seed=0)
        optimizer = keras.optimizers.SGD(0.04, gradient_accumulation_steps=4)
        model.compile(optimizer, "sparse_categorical_crossentropy")
    model.fit(images, labels, 32, verbose=0)


try:
    cu.LocalCluster(workers=1, output="quiet").run(
        plain_keras, images[:512], labels[:512]
    )
    refused = None
except cu.cluster.WorkerError as error:
    refused = str(error)
reason = refused[refused.index("`merge_call`") :]  # what stands before colours it
print(reason.partition(". ")[0])

# %% [markdown]
# It decides *inside the graph* whether a part updates, and replicas cannot meet inside such a branch. (`keras_multiworker` decides in Python, and then it works.)
#
# ## Exercise 06.2 · One update from many parts
#
# In a loop of your own it takes few lines, and neither trap is there. `parts` is a list of (images, labels): this replica's examples, in parts that need not be equally large. `large_batch` counts the examples of *all* parts on *all* replicas. The model gives logits; the loss is the cross-entropy, averaged over the large batch. Make one update. Never keep more than one part in memory (a tape remembers its part), meet once, and return this replica's share of the loss. About 9 lines.


# %% tags=["exercise"] exercise_id="06.accumulate"
def accumulate(model, optimizer, parts, large_batch):
    """This replica's share of the loss, after one update from all parts."""
    ...


# %%
cu.check("06.accumulate", accumulate)

# %% [markdown]
# ## Equal to the large batch
#
# `cu.training.accumulating_step` does it inside the graph. Five updates with a batch of 512: at once on one device, and on two replicas in parts of at most 48.


# %%
def five_updates(replicas, make_step):
    """The weights after five updates with a global batch of 512."""
    strategy = cu.devices.mirrored(replicas)
    with strategy.scope():
        model, sgd = cu.models.small_cnn(seed=0), keras.optimizers.SGD(0.05)
        sgd.build(model.trainable_variables)
    on_a_replica = make_step(model, sgd)
    step = tf.function(lambda batch: strategy.run(on_a_replica, args=batch))
    dataset = cu.training.training_data((images, labels), 512)
    with cu.training.iterators_end_at_once():
        batches = iter(strategy.experimental_distribute_dataset(dataset))
    for _ in range(5):
        step(next(batches))
    return model.get_weights()


large = five_updates(1, lambda *job: cu.training.train_step(*job, 512))
in_parts = five_updates(2, lambda *job: cu.training.accumulating_step(*job, 512, 48))
moved = apart(large, cu.models.small_cnn(seed=0).get_weights())
print(f"moved by {moved:.0e}, apart by {apart(large, in_parts):.0e}")

# %% [markdown]
# ## What travels
#
# Two promises are often made about the network. That accumulation saves traffic. And that **mixed precision** does, which computes in 16 bits: `mixed_bfloat16` or `mixed_float16`.
#
# ### Predict
#
# In float32 a worker sends 4 bytes for each weight and batch of 128. How many with `mixed_bfloat16`? And how many a *batch of 128* if four of them make one update?

# %% tags=["predict"]
my_guess = {"mixed_bfloat16": None, "four batches, one update": None}


# %%
def bytes_a_weight(strategy, policy, parts, updates=4):
    """Bytes that this worker sends for each weight and batch of 128."""
    with strategy.scope():
        model = cu.models.mlp([128], seed=0, dtype=policy)
        optimizer = keras.optimizers.SGD(0.05)
        if policy == "mixed_float16":
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
        optimizer.build(model.trainable_variables)
    step = cu.training.accumulating_step(model, optimizer, 128 * parts, 64)
    dataset = cu.training.training_data((images, labels), 128 * parts)
    batches = iter(strategy.experimental_distribute_dataset(dataset))
    run = tf.function(lambda batch: strategy.run(step, args=batch))
    run(next(batches))  # the first call also traces and connects
    cu.training.meet(strategy)
    before = cu.wire.bytes_sent()
    for _ in range(updates):
        run(next(batches))
    cu.training.meet(strategy)  # a neighbour may still be reading from this worker
    return (cu.wire.bytes_sent() - before) / (updates * parts * model.count_params())


def measure(kinds):
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    return {kind: bytes_a_weight(strategy, *kind) for kind in kinds}


kinds = ("float32", 1), ("mixed_bfloat16", 1), ("mixed_float16", 1), ("float32", 4)
sent = cu.LocalCluster(workers=2, output="quiet").run(measure, kinds)[0]
for (policy, parts), travelled in sent.items():
    print(f"{policy:15} × {parts}: {travelled:.2f} bytes a weight and batch")


# %%
def types(policy):
    """The types of weights, of the hidden layer's outputs, and of the gradients."""
    mixed = cu.models.mlp([64], seed=0, dtype=policy)
    with tf.GradientTape() as tape:
        losses = cu.training.per_example_loss(labels[:32], mixed(images[:32]))
    gradients = tape.gradient(losses, mixed.trainable_variables)
    kinds = mixed.trainable_variables, [mixed.layers[-2].output], gradients
    return [{keras.backend.standardize_dtype(t.dtype) for t in kind} for kind in kinds]


in_16_bits = {policy: types(policy) for policy in ("mixed_bfloat16", "mixed_float16")}
for policy, (weights, hidden, gradients) in in_16_bits.items():
    print(f"{policy}: weights {weights}, hidden {hidden}, gradients {gradients}")

# %% [markdown]
# **Mixed precision saves no byte.** It computes in 16 bits, which GPUs and many CPUs do faster, and keeps activations at half the size. But the *weights* stay float32, and so do their gradients: that is what "mixed" means, and gradients are what travels. To send less you have to compress on purpose (lesson 13).
#
# **Accumulation saves traffic**: a quarter of the bytes is left, since the replicas meet a quarter as often. But those are a quarter of the updates too.
#
# ## Why float16 needs loss scaling
#
# float16 and bfloat16 are equally long, but spend their bits differently. Which gradients of the trained model's hidden layer survive?


# %%
def hidden_gradients(policy, scale=1, batch=8192):
    """Gradients of the mean loss by the hidden layer's outputs, after training."""
    mixed = cu.models.mlp([64], seed=0, dtype=policy)
    mixed.set_weights(model.get_weights())
    *body, head = mixed.layers
    hidden = keras.Sequential(body)(images[:batch])
    with tf.GradientTape() as tape:
        tape.watch(hidden)
        losses = cu.training.per_example_loss(labels[:batch], head(hidden))
        loss = scale * cu.training.average_loss(losses, batch)
    return tf.cast(tape.gradient(loss, hidden), "float32").numpy()


def share_lost(*case):
    """The share of the gradients that have become 0."""
    exact = hidden_gradients("float32", 1, case[-1])
    return np.mean(hidden_gradients(*case)[exact != 0] == 0)


cases = [("mixed_bfloat16", 1, 8192), ("mixed_float16", 1, 512)]
cases += [("mixed_float16", 1, 8192), ("mixed_float16", 2**15, 8192)]
lost = {case: share_lost(*case) for case in cases}
for (policy, scale, batch), share in lost.items():
    print(f"{policy:14} batch {batch:4}, loss × {scale:5}: {share:6.2%} have become 0")

# %%
exact = hidden_gradients("float32")
panels = {"as they are": exact, "loss × 32768": exact * 2**15}
cu.plots.show(
    cu.plots.magnitudes(panels, "float16"),
    alt="The gradients' sizes reach under the smallest of float16; multiplied by "
    "32,768 they lie inside its range.",
)

# %% [markdown]
# Too small for float16, they become 0, and the *larger the batch, the more of them*, since each is divided by it. bfloat16 has the range of float32 and loses nothing this way. The cure for float16: multiply the loss, divide the gradients before the update. **`LossScaleOptimizer`** does it (`compile` puts it in by itself) and looks for the factor: an update whose gradients overflow is skipped, and the factor halved.
#
# ### Who overflows?
#
# Which replica is asked? We let one of two overflow, again in a fresh process without the mend.


# %%
def overflow_on(replica, agree):
    """The weight, 1 before the update, and the loss scale, 8 before it."""
    strategy = cu.devices.mirrored(2)
    with strategy.scope():
        weight = tf.Variable(1.0)
        sgd = keras.optimizers.SGD(0.1)
        optimizer = keras.optimizers.LossScaleOptimizer(sgd, initial_scale=8.0)
        optimizer.build([weight])

    def step():
        me = tf.distribute.get_replica_context().replica_id_in_sync_group
        gradient = tf.where(tf.equal(me, replica), np.inf, 1.0)
        optimizer.apply(agree([gradient]), [weight])

    tf.function(lambda: strategy.run(step))()
    return float(weight.numpy()), float(optimizer.dynamic_scale.numpy())


ways = {"Keras": list, "agreed": cu.training.overflow_together}
overflowed = cu.LocalCluster(workers=1, output="quiet").run(
    lambda: {
        name: [overflow_on(i, agree) for i in (0, 1)] for name, agree in ways.items()
    }
)[0]
for name, (first, second) in overflowed.items():
    print(f"{name:7} replica 0 overflows: {first}   replica 1: {second}")

# %% [markdown]
# Keras asks **the first replica alone**. If another overflows, infinity goes into the weights. The mended `fit` asks all; in a loop of your own, `cu.training.overflow_together` lets one number travel.
#
# ## `fit` has ears: callbacks
#
# Four that nearly every job has. We make them work hard: 200 images, so that the model soon learns them by heart, and a rate that a schedule sets each *epoch*.

# %%
folder = tempfile.TemporaryDirectory()
best_file = Path(folder.name, "best.keras")
per_epoch = cu.schedules.WarmupCosine(0.3, 3, 60)
callbacks = [
    keras.callbacks.LearningRateScheduler(per_epoch),
    keras.callbacks.EarlyStopping("val_loss", patience=5, restore_best_weights=True),
    keras.callbacks.ModelCheckpoint(best_file, "val_loss", save_best_only=True),
    keras.callbacks.TensorBoard(folder.name + "/logs", write_graph=False),
]
learner = compiled(two_replicas, lambda: keras.optimizers.SGD(0.1))
few = images[:200], labels[:200]
kept = learner.fit(
    *few,
    50,
    40,
    validation_data=test,
    validation_batch_size=1000,
    callbacks=callbacks,
    verbose=0,
).history
best = int(np.argmin(kept["val_loss"]))
print(f"best epoch {best + 1}, stopped after {len(kept['val_loss'])} of 40")

# %%
renamed = {"loss": "train_loss", "val_loss": "test_loss"}
renamed |= {"accuracy": "train_accuracy", "val_accuracy": "test_accuracy"}
epochs = [
    {new: kept[old][epoch] for old, new in renamed.items()}
    for epoch in range(len(kept["loss"]))
]
cu.plots.show(
    cu.plots.learning_curves(epochs),
    alt=f"Training loss falls on; test loss is lowest after epoch {best + 1}.",
)
in_memory, _ = cu.training.evaluate(learner, test)
in_file, _ = cu.training.evaluate(keras.models.load_model(best_file), test)
log = EventAccumulator(folder.name + "/logs/validation", {"tensors": 0}).Reload()
logged = [tf.make_ndarray(e.tensor_proto).item() for e in log.Tensors("epoch_loss")]
print(f"best epoch {kept['val_loss'][best]:.4f}, last {kept['val_loss'][-1]:.4f}")
print(f"in memory  {in_memory:.4f}, in the file {in_file:.4f}")
print(len(logged), "epochs in TensorBoard's log")

# %%
tensors = keras.optimizers.schedules.CosineDecay(0.1, 40)
try:
    scheduler = keras.callbacks.LearningRateScheduler(tensors)
    learner.fit(*few, 50, verbose=0, callbacks=[scheduler])
    complaint = None
except ValueError as error:
    complaint = str(error)
print(complaint)

# %% [markdown]
# Memory and file hold the best epoch, the log has every epoch. Without `restore_best_weights` you keep the last.
#
# And a trap: that callback wants a *number*, Keras' schedules give *tensors*. (`WarmupCosine` returns a float when it is called with a Python number.)
#
# ## Exercise 06.3 · Stop early, keep the best
#
# The same in a loop of your own. `train_epoch(e)` trains epoch e, from 1; `validate()` gives the validation loss. Stop when `patience` epochs in a row brought no new lowest loss (NaN is none), or after `epochs`. **However it ends**, the model has its best weights. Return the list of losses. About 12 lines.


# %% tags=["exercise"] exercise_id="06.keep_the_best"
def keep_the_best(model, train_epoch, validate, epochs, patience):
    """The validation losses; the model has its best weights."""
    ...


# %%
cu.check("06.keep_the_best", keep_the_best)

# %% [markdown]
# ## What must be true now

# %%
assert updates == [20, 20] and same < 1e-6  # batch_size is the global batch

# The same rate: the larger the batch, the less is learned from the same examples.
constant, scaled, cosine, warmed = last.values()
assert constant[32] > constant[128] + 1 and constant[128] > constant[512] + 4
assert abs(scaled[128] - constant[32]) < 3 and scaled[128] > constant[128]
assert scaled[512] < constant[512] < min(cosine[512], warmed[512])
assert max(cosine[512], warmed[512]) < scaled[128] - 4  # too few updates
assert abs(cosine[512] - warmed[512]) < 4  # the warm-up hardly matters here

# From the same number of updates nearly the same is learned, whatever the batch.
by_32, by_128, by_512 = runs["constant"].values()
np.testing.assert_allclose([by_128[-1], by_512[-1]], [by_32[0], by_128[0]], atol=0.04)

# Accumulation: the update of the large batch, unless unequal parts count alike.
assert even < 1e-6 < 1e-4 < uneven and "merge_call" in refused
np.testing.assert_allclose(noted, [schedule(part) for part in range(16)], atol=1e-6)
assert apart(large, in_parts) < 1e-6 < 1e-3 < moved

# Mixed precision: not a byte less, and gradients in float32.
if np.isfinite(sent["float32", 1]):  # where the system tells
    for policy in ("mixed_bfloat16", "mixed_float16"):
        assert abs(sent[policy, 1] / sent["float32", 1] - 1) < 0.01
    assert abs(sent["float32", 4] / sent["float32", 1] - 1 / 4) < 0.01
for policy, kinds in in_16_bits.items():
    assert kinds == [{"float32"}, {policy.removeprefix("mixed_")}, {"float32"}]
none, some, many, rescued = lost.values()
assert none == 0 and rescued < some < many

# Overflow, and callbacks that keep their word.
assert overflowed == {"Keras": [(1.0, 4.0), (-np.inf, 8.0)], "agreed": [(1.0, 4.0)] * 2}
assert best + 1 < len(kept["val_loss"]) < 40
np.testing.assert_allclose([in_memory, in_file], kept["val_loss"][best], atol=1e-4)
np.testing.assert_allclose(logged, kept["val_loss"], rtol=1e-6)
assert "should be a float" in complaint

# %% [markdown]
# > **Take away.** `fit` counts the global batch, and training counts updates: scale the rate with the batch, let it end small, and know that the rule ends. Parts make a large batch if each *example* counts alike. Mixed precision speeds up the computing, not the network.
#
# Next: [07 · How do processes find each other?](07_tf_config.ipynb)
