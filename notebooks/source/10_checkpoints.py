# %% [markdown]
# # 10 · Who may write?
#
# Two workers hold the same model. If a machine dies, hours of training are gone, unless somebody has written them down. But who writes, and where? If both write to one file, they get into each other's way. If one writes alone, it may wait for the other for ever.
#
# **After this lesson** you can save and resume a job on any number of workers, so that the resumed training ends in the *same bits* as one that was never disturbed.
#
# *35 minutes · builds on lessons 05 (restore) and 09 (two workers, one model)*

# %%
import signal
import tempfile
import warnings
from pathlib import Path

import course_utils as cu

cu.cluster.warm_up(wait=False)  # the workers-to-be import TensorFlow meanwhile
import keras
import tensorflow as tf

# %% tags=["parameters"]
profile = "laptop"

# %% [markdown]
# ## The job
#
# A small network, 20 steps by SGD with momentum, on two workers. Momentum is a memory of the steps before. It is as large as the model, and it lives in the *optimizer*.
#
# Everything is written into `place`, which both workers see. On several machines that is shared storage: a network file system or a bucket.

# %%
cu.plots.style()
cu.devices.simulate(4)
data = cu.datasets.fashion_mnist()
examples = data.train_images[:640], data.train_labels[:640]
BATCH, STEPS, SAVE_EVERY = 64, 20, 4  # 10 batches are a pass over the examples
scratch = tempfile.TemporaryDirectory()
place = Path(scratch.name)


def make(strategy):
    with strategy.scope():
        model = cu.models.mlp([32], seed=0)
        optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
        optimizer.build(model.trainable_variables)
    return model, optimizer


def on_worker(job, *args, **options):
    cu.keras_multiworker.enable()
    return job(tf.distribute.MultiWorkerMirroredStrategy(), *args, **options)


def meet(strategy):
    """Return when all workers have come here: an all-reduce of nothing."""
    strategy.reduce("SUM", tf.constant(0.0), axis=None)


cluster = cu.LocalCluster(workers=2, output="quiet")

# %% [markdown]
# ## Everybody, to one path
#
# Both workers run the same program, so both come to the line that saves. And both would write the very same weights.
#
# ### Predict
#
# Same path, same bytes. Does it work: always, never, or sometimes?

# %% tags=["predict"]
my_guess = None


# %%
class SlowDisk(keras.layers.Layer):
    """Worker 0 has begun to write, and goes on when worker 1 has tried as well."""

    def save_own_variables(self, store):
        strategy = tf.distribute.get_strategy()
        if strategy.cluster_resolver.task_id == 0:
            meet(strategy)
            meet(strategy)


def outcome(save, *args):
    try:
        save(*args)
        return "saved"
    except (OSError, tf.errors.OpError) as error:
        return type(error).__name__


def save_at_once(strategy, folder):
    """How it ended here: saving in two formats, then 20 times with a manager."""
    worker, ended = strategy.cluster_resolver.task_id, {}
    with strategy.scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1), SlowDisk()])
        model.layers[0].bias.assign([worker])  # something of its own, see below
        for name, save in {"h5": model.save_weights, "keras": model.save}.items():
            if worker == 1:
                meet(strategy)  # worker 0 has begun
            ended[name] = outcome(save, folder / FILES[name])
            if worker == 1:
                meet(strategy)  # worker 0 may go on
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(model=model), folder, 1)
    ended["by chance"] = [
        outcome(lambda: (meet(strategy), manager.save())) for _ in range(20)
    ]
    return ended


# %%
FILES = {"h5": "model.weights.h5", "keras": "model.keras"}


def whose(path):
    fast = {"SlowDisk": keras.layers.Layer}
    try:
        model = keras.models.load_model(path, custom_objects=fast)
        return f"holds what worker {int(model.layers[0].bias[0])} wrote"
    except Exception as error:  # whatever half a file leads to
        return f"cannot be read: {type(error).__name__}"


folder = place / "one path"
folder.mkdir()
to_one_path = cluster.run(on_worker, save_at_once, folder)
for worker, ended in enumerate(to_one_path):
    luck = {name: ended["by chance"].count(name) for name in set(ended["by chance"])}
    print(f"worker {worker}: {ended['h5']}, {ended['keras']}; 20 checkpoints: {luck}")
print(FILES["keras"], whose(folder / FILES["keras"]))

# %% [markdown]
# **Sometimes**: the worst answer. HDF5 locks its file, so worker 1 was refused. `.keras` let both write without a word: whose model is in the file, or a mixture that nobody can read, is luck. For this the slow disk made them meet. The 20 checkpoints were left to chance: run it again, and the counts are others.
#
# (The workers differed on purpose. Think of the BatchNormalization statistics in lesson 09.) **One path, one writer.**
#
# ## The chief, alone
#
# So let only the chief write: one checkpoint of model and optimizer, and one that also has a metric, the running mean of a loss.
#
# ### Predict
#
# Only worker 0 calls `save`, worker 1 goes on. Which of the two gets written?

# %% tags=["predict"]
my_guess = {"weights and optimizer": None, "and a metric": None}


# %%
def chief_saves(strategy, folder, with_metric):
    model, optimizer = make(strategy)
    with strategy.scope():
        mean_loss = keras.metrics.Mean()
    parts = {"model": model, "optimizer": optimizer}
    if with_metric:
        parts["mean_loss"] = [variable.value for variable in mean_loss.variables]
    if strategy.cluster_resolver.task_id == 0:
        return tf.train.Checkpoint(**parts).save(folder / "ckpt")


short = cu.LocalCluster(workers=2, output="quiet", timeout=5)
alone = {}
for name, on in {"weights and optimizer": cluster, "and a metric": short}.items():
    try:
        written = on.run(on_worker, chief_saves, place / "alone", on is short)[0]
        alone[name] = f"written: {Path(written).name}"
    except cu.errors.ClusterError as error:
        alone[name] = error.seen
    print(f"{name}: {alone[name]}", end="\n\n")

# %% [markdown]
# Weights are copies: the chief reads its own. But a metric's count is *spread* over the workers, and to save it is to add it up: an **all-reduce** (lesson 09). The chief waits for a worker that never comes. Here a time limit of 5 seconds ended it; on a real cluster the job stands still, and nobody says why.
#
# A job that saves weights today may save a metric tomorrow. So make it a rule: **everybody saves, each to a path of its own.** The chief's is the one that counts; what the others wrote is thrown away.

# %% [markdown]
# ## Exercise 10.1 · Who is the chief?
#
# A cluster may have a task of type `chief`. If it has none, worker 0 is the chief. And a process without any cluster is its own. `resolver` is a strategy's `cluster_resolver`: it has `task_type` (None without a cluster), `task_id` and `cluster_spec().jobs`, a list of the types that there are. About 3 lines.


# %% tags=["exercise"] exercise_id="10.is_chief"
def is_chief(resolver):
    """True or False."""
    ...


# %%
cu.check("10.is_chief", is_chief)

# %% [markdown]
# ## Everybody, each to its own path
#
# A `CheckpointManager` numbers checkpoints and removes all but the newest `max_to_keep`. Every worker has one, but in a folder of its own.


# %%
def own_folder(strategy, job):
    worker = strategy.cluster_resolver.task_id
    return job / ("checkpoints" if worker == 0 else f"worker-{worker}-temp")


def save(strategy, manager, step, moments):
    manager.save(checkpoint_number=step)  # on every worker
    look(strategy, moments, Path(manager.directory).parent, f"{step}\nsaved")
    if strategy.cluster_resolver.task_id != 0:
        tf.io.gfile.rmtree(manager.directory)
    look(strategy, moments, Path(manager.directory).parent, f"{step}\ncleaned")


def kill_worker_1(strategy):
    meet(strategy)
    if strategy.cluster_resolver.task_id == 1:
        signal.raise_signal(signal.SIGKILL)


def look(strategy, moments, job, when):
    """Note which checkpoints are there, while nobody writes. For the picture only."""
    meet(strategy)
    names = [
        str(path.relative_to(job).with_suffix("")) for path in job.rglob("*.index")
    ]
    moments[when] = {name: int("worker-1" in name) for name in names}
    meet(strategy)


# %% [markdown]
# ## What a job must remember
#
# Here is the whole training. It *always* starts by looking for a checkpoint; at the first start there is none. The checkpoint holds the model, the optimizer, and how many steps are `done`.
#
# Look at the line with `skip`. The order of the examples follows from the seed, so "how many steps are done" **is** the position in the data. (`start`, `forget` and `dies_in` are for what we do to it below.)
#
# First a run that nobody disturbs. After each save both workers stop, and we look at what is on the disk; then worker 1 cleans up, and we look again.


# %%
def train(strategy, job, start=None, forget=None, dies_in=None):
    """Steps done at the start, losses, final weights, and what was on the disk when."""
    model, optimizer = make(strategy)
    with strategy.scope():
        done = tf.Variable(0, dtype=tf.int64)
    parts = {"model": model, "optimizer": optimizer, "done": done}
    parts = {name: part for name, part in parts.items() if name != forget}
    checkpoint = tf.train.Checkpoint(**parts)
    latest = tf.train.latest_checkpoint((start or job) / "checkpoints")  # for all
    if latest is not None:
        checkpoint.restore(latest).assert_existing_objects_matched()
    first = int(done.numpy())

    batches = cu.training.training_data(examples, BATCH, seed=0)
    batches = batches.skip(0 if forget == "position" else first)
    batches = iter(strategy.experimental_distribute_dataset(batches))
    on_a_replica = cu.training.train_step(model, optimizer, BATCH)
    run_steps = cu.training.train_function(strategy, on_a_replica)

    manager = tf.train.CheckpointManager(checkpoint, own_folder(strategy, job), 2)
    losses, moments = [], {}
    for step in range(first + 1, STEPS + 1):
        if step == dies_in:
            kill_worker_1(strategy)
        losses.append(float(run_steps(batches, tf.constant(1))))
        print("loss", losses[-1])
        done.assign(step)
        if step % SAVE_EVERY == 0:
            save(strategy, manager, step, moments)
    return first, losses, model.get_weights(), moments


# %%
undisturbed = cluster.run(on_worker, train, place / "undisturbed")
first, losses, weights, moments = undisturbed[0]
cu.plots.show(
    cu.plots.files_over_time(moments, "Two workers save every 4 steps, and 2 are kept"),
    alt="Directory tree over time. In checkpoints, written by worker 0, never more "
    "than the two newest are there. In worker-1-temp one checkpoint appears with each "
    "save and is gone after the cleaning.",
)

# %% [markdown]
# ## Exercise 10.2 · Save on every worker
#
# This runs on each of three workers. `checkpoint` is a `tf.train.Checkpoint` with a metric in it; `checkpoint.write(path)` writes it. Afterwards the checkpoint is to be at `path`, written by the chief, and nothing that another worker wrote may be left. Checked on a real cluster. About 4 lines.


# %% tags=["exercise"] exercise_id="10.save"
def save_everywhere(checkpoint, path, chief, worker):
    """None. `path` is a text, `chief` True or False, `worker` a number."""
    ...


# %%
cu.check("10.save", save_everywhere)

# %% [markdown]
# ## A worker dies
#
# Now the same job in another folder, and at step 15 worker 1 is killed: `SIGKILL`, as when the power goes. Then all are started again, three times, each time from what was on the disk: once with everything, once without the optimizer, once without the position in the data.
#
# ### Predict
#
# It has saved after steps 4, 8 and 12. Which of the three ends with the weights of the undisturbed run?

# %% tags=["predict"]
my_guess = {"everything": None, "no optimizer": None, "no position": None}

# %%
try:
    cluster.run(on_worker, train, place / "killed", dies_in=15)
except cu.cluster.WorkerDied as error:
    death = error.seen
print(death)
lines = [line.split() for line in cluster.logs[0].splitlines()]
before = [float(words[1]) for words in lines if words[:1] == ["loss"]]
left = sorted(path.name for path in (place / "killed").rglob("*.index"))
print("On the disk:", *left)


# %%
def resume_each_way(strategy, start):
    ways = {"everything": "", "no optimizer": "optimizer", "no position": "position"}
    return {way: train(strategy, place / way, start, ways[way]) for way in ways}


distance = cu.training.largest_difference
resumed = cluster.run(on_worker, resume_each_way, place / "killed")
apart = {way: distance(run[2], weights) for way, run in resumed[0].items()}
for way, difference in apart.items():
    print(f"{way:12} from step {resumed[0][way][0]} on, weights {difference:.2g} apart")

# %% [markdown]
# ## The curve, joined
#
# **Zero.** Not "about the same": with everything restored, the job ends in the same bits, on both workers, as if nothing had happened. Steps 13 and 14 were done twice; nothing else was lost.
#
# The two others ran through as well, without a word. Look where they leave the grey curve.

# %%
not_yet = [float("nan")] * resumed[0]["everything"][0]
cu.plots.show(
    cu.plots.curves_over_reference(
        {
            way: {"resumed": not_yet + run[1], "until the kill": before}
            for way, run in resumed[0].items()
        },
        losses,
        ylabel="loss (nats)",
        reference_name="never disturbed",
    ),
    alt="Loss over 20 steps in three panels: 14 until the kill, then from 13 on. With "
    "everything restored the resumed curve lies on the undisturbed one. Without the "
    "optimizer, and without the position in the data, it leaves it.",
)

# %% [markdown]
# *No optimizer*: the momentum starts at zero. *No position*: the first batches come again, and those that were next do not. `assert_existing_objects_matched` found nothing wrong: all that you put into the `Checkpoint` did come back. What you left out, it cannot know.
#
# **So prove a resume by equality.** It takes two short runs, and finds what you forgot.
#
# ## Exercise 10.3 · Resume, and repeat nothing
#
# The newest checkpoint in `folder` was saved from `tf.train.Checkpoint(model=model, optimizer=optimizer, done=done)`; `done` counts the steps. Restore it into these three (they are built), and return the batches still to come. `data` is an endless, seeded dataset, one batch a step. At the first start the folder is empty. About 5 lines.


# %% tags=["exercise"] exercise_id="10.resume"
def resume(folder, model, optimizer, done, data):
    """The dataset of the batches that are still to come."""
    ...


# %%
cu.check("10.resume", resume)

# %% [markdown]
# ## Other devices, same model
#
# A checkpoint holds values, and not where they lived. What two workers wrote goes into four replicas of one process, or into a plain model without any strategy.

# %%
latest = tf.train.latest_checkpoint(place / "undisturbed" / "checkpoints")
restored = {
    "four replicas": make(cu.devices.mirrored(4)),
    "a plain model": make(tf.distribute.get_strategy()),
}
for name, (model, optimizer) in restored.items():
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
    checkpoint.restore(latest).expect_partial().assert_existing_objects_matched()
    print(name, "differs by", distance(model.get_weights(), weights))

# %% [markdown]
# ## A model that is ready
#
# For a *model* Keras 3 writes files: `.keras`, with everything, and `.weights.h5`. (`.h5`, which the message below names too, is the old format.) A name without an ending used to mean a folder; no longer. Both know the optimizer, too, but look closely.

# %%
trained, optimizer = restored["a plain model"]
trained.compile(optimizer, "mse")
trained.save(place / "model.keras")
trained.save_weights(place / "model.weights.h5")
try:
    trained.save(place / "model")
except ValueError as error:
    refused = str(error).partition(" Received")[0]
print(refused, end="\n\n")

whole = keras.models.load_model(place / "model.keras")
fresh = cu.models.mlp([32], seed=2)
fresh.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse")
with warnings.catch_warnings(record=True) as said:
    fresh.load_weights(place / "model.weights.h5")
print(".keras:     ", int(whole.optimizer.iterations), "steps done")
print(".weights.h5:", int(fresh.optimizer.iterations), "steps done,", said[0].message)

# %% [markdown]
# `.weights.h5` brings the optimizer back only into one that is *built*; else there is a warning, and training begins without momentum. And neither format knows the position in the data. **They are for a model that is ready; a `tf.train.Checkpoint` is for a training that goes on.**
#
# ## The same with `fit`
#
# `ModelCheckpoint` keeps models. `cu.checkpoints.write_path` gives it the path for this worker, `clean` tidies up. `BackupAndRestore` is for resuming; each worker reads *its own* backup, so each has a folder that stays: `own_folder`.
#
# ### Predict
#
# Cut off in the third epoch and started again: does `BackupAndRestore` join exactly, if the examples come in a fixed order? And if they are shuffled, by a seed?

# %% tags=["predict"]
my_guess = {"fixed order": None, "shuffled": None}


# %%
class CutOff(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if int(self.model.optimizer.iterations.numpy()) == 25:  # on every worker
            raise KeyboardInterrupt


def fit(strategy, job, data, resume_by, cut=False):
    """The weights after 4 epochs of `fit`, resumed if it can; None if cut off."""
    with strategy.scope():
        model, optimizer = make(strategy)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer, loss)
        saved = cu.checkpoints.Checkpoints(job / "checkpoints", model=model)
    if resume_by == "Checkpoints":
        first, resume = saved.restore(), saved.each_epoch(10)
    else:  # the callback finds the epoch, but nobody knows the position in the data
        own = cu.checkpoints.own_folder(job / "backup", strategy)
        first, resume = 0, keras.callbacks.BackupAndRestore(own)
    models = cu.checkpoints.write_path(job / "epoch-{epoch}.keras", strategy)
    callbacks = [keras.callbacks.ModelCheckpoint(models), resume] + [CutOff()] * cut
    how = {"epochs": 4, "steps_per_epoch": 10, "initial_epoch": first // 10}
    try:
        model.fit(
            data(examples, BATCH).skip(first), **how, callbacks=callbacks, verbose=0
        )
    except KeyboardInterrupt:
        return None
    cu.checkpoints.clean(models, strategy)
    return model.get_weights()


# %%
ORDERED, SHUFFLED = cu.training.evaluation_data, cu.training.training_data
jobs = {
    "BackupAndRestore, fixed order": (ORDERED, "BackupAndRestore"),
    "BackupAndRestore, shuffled": (SHUFFLED, "BackupAndRestore"),
    "Checkpoints, shuffled": (SHUFFLED, "Checkpoints"),
}


def fit_all(strategy, folder, cut=False):
    return {name: fit(strategy, folder / name, *jobs[name], cut) for name in jobs}


def whole_and_cut_off(strategy):
    whole = fit_all(strategy, place / "fit")
    return whole, fit_all(strategy, place / "fit again", cut=True)


by_fit, cut = cluster.run(on_worker, whole_and_cut_off)[0]
again = cluster.run(on_worker, fit_all, place / "fit again")[0]  # new processes
fit_apart = {name: distance(again[name], by_fit[name]) for name in jobs}
for name, difference in fit_apart.items():
    print(f"{name:30} weights {difference:.2g} apart")

# %% [markdown]
# ## What a callback cannot know
#
# `BackupAndRestore` brought back weights, optimizer and the number of the epoch. With a fixed order that is all there is. But the shuffled dataset was made anew, and began with the order of the *first* epoch, in silence.
#
# `cu.checkpoints.Checkpoints` is this lesson as a class. `restore()` says how many steps are done *before* you make the data, and checks that all workers found the same. There is one more reason for it: `BackupAndRestore` overwrites its weights in place and notes the epoch in a second file. A kill between the two, or between two workers' backups, leaves what does not fit together.

# %% [markdown]
# ## What must be true now

# %%
assert [ended["h5"] for ended in to_one_path] == ["saved", "BlockingIOError"]
assert [ended["keras"] for ended in to_one_path] == ["saved", "saved"]
assert alone["weights and optimizer"].startswith("written")
assert "worker 1 has finished" in alone["and a metric"]  # the chief waits for it

for when, files in moments.items():
    assert 1 <= sum(writer == 0 for writer in files.values()) <= 2
    assert (1 in files.values()) == ("saved" in when)

assert "Worker 1 was killed" in death and left == ["ckpt-12.index", "ckpt-8.index"]
for (_, whole_run, weights_there, _), runs in zip(undisturbed, resumed, strict=True):
    start, after, weights_again, _ = runs["everything"]
    assert start == 12 and before == whole_run[:14] and after == whole_run[12:]
    assert distance(weights_again, weights_there) == 0
assert min(apart["no optimizer"], apart["no position"]) > 1e-3
for model, _ in restored.values():
    assert distance(model.get_weights(), weights) == 0
assert int(whole.optimizer.iterations) == STEPS and ".keras" in refused
assert int(fresh.optimizer.iterations) == 0 and "Skipping" in str(said[0].message)

assert all(weights is None for weights in cut.values())
assert fit_apart["BackupAndRestore, fixed order"] == 0
assert fit_apart["BackupAndRestore, shuffled"] > 1e-3
assert fit_apart["Checkpoints, shuffled"] == 0

# %% [markdown]
# > **Take away.** Saving may be a meeting, so everybody saves; a file has one writer, so each has a path of its own, and the chief's counts. What must come back is the model, the optimizer, and how far you are in the data. Prove it by equality with a run that was never disturbed.
#
# Next: [11 · A worker dies. What now?](11_when_a_worker_dies.ipynb)
