"""Checkpoints of a job with any number of workers: who writes where, and a resume that loses nothing.

Saving reads every variable, and reading one that each worker keeps a part of (a metric) is an all-reduce. So
**all workers save, at the same step**. But one file has one writer, so each has a path of its own. What the
chief wrote counts; what the others wrote is thrown away at once. To restore, all read what the chief wrote.

A custom loop, the same program on every worker, at the first start and after a crash:

    with strategy.scope():
        model, optimizer = make_model(), keras.optimizers.SGD(0.05)
        saved = Checkpoints(folder, model=model, optimizer=optimizer, max_to_keep=3)
    first = saved.restore()  # 0 at the first start, else the steps that are done
    data = data_from(first, (images, labels), global_batch_size, seed=0)  # or a seeded dataset's skip(first)
    batches = iter(strategy.experimental_distribute_dataset(data))
    for step in range(first, steps):
        train(next(batches))
        if (step + 1) % 10 == 0:
            saved.save(step + 1)

`Model.fit`, resumed at the last whole epoch (an epoch may be as short as you like):

    with strategy.scope():
        model = make_compiled_model()
        saved = Checkpoints(folder, model=model)  # with the optimizer that it was compiled with
    first = saved.restore()
    model.fit(
        data_from(first, examples, global_batch_size), steps_per_epoch=S, epochs=E, initial_epoch=first // S,
        callbacks=[saved.each_epoch(S)],
    )

`fit` with Keras' own `BackupAndRestore(own_folder(folder))`: weights, optimizer (its rate included) and the
number of the epoch come back, on every worker from its own folder. These do not: the position in a shuffled
dataset (the first epoch's order comes again), what other callbacks remember (the best loss of EarlyStopping
and ModelCheckpoint, ReduceLROnPlateau's patience), the History, and the batches of an epoch that was cut off.
It is not safe against a kill at any moment. It overwrites its one file in place, and notes the epoch in a
second file afterwards: killed in between, an epoch is trained twice, in silence. Killed between two workers'
backups, their epochs differ, and the job hangs, or stops with an error of its collectives.
(`double_checkpoint=True` helps against a torn file only.) `Checkpoints` has none of these faults.

Sources: https://www.tensorflow.org/tutorials/distribute/multi_worker_with_keras#model_saving_and_loading for
the path of each worker, https://www.tensorflow.org/api_docs/python/tf/train/CheckpointManager for the rest.
"""

from __future__ import annotations

import contextlib
import os

import keras
import tensorflow as tf

from course_utils import training
from course_utils.checks import whole
from course_utils.errors import DataError

STEP = "step/.ATTRIBUTES/VARIABLE_VALUE"  # what TensorFlow calls the variable `step` in a checkpoint


def is_chief(strategy=None) -> bool:
    """Whether this process's files are those that count: the chief's, or worker 0's where there is no chief.

    strategy: a strategy or a cluster resolver; without one, the strategy whose scope this is in. A process
    that is in no cluster is its own chief. An evaluator or a parameter server never is.
    """
    task_type, task_id, jobs = _task(strategy)
    if task_type == "worker":
        return task_id == 0 and "chief" not in jobs
    return task_type in (None, "chief")


def write_path(path: str | os.PathLike, strategy=None) -> str:
    """Where this worker writes what is to end up in `path`, file or folder: the chief there, others nearby.

    "job/model.keras" becomes "job/worker-1-temp/model.keras" on worker 1; `clean` removes it when all is
    written. Placeholders of Keras callbacks in the name, such as "{epoch}", stay. The folder around it is
    made, since callbacks of two workers that both find it missing both make it, and one of them raises.
    """
    folder, name = os.path.split(os.fspath(path).rstrip("/"))
    if not is_chief(strategy):
        folder = _temporary(folder, strategy)
    _make(folder)
    return os.path.join(folder, name)


def clean(path: str | os.PathLike, strategy=None) -> None:
    """None; what this worker wrote to `write_path(path)` is gone, if it is not the chief.

    A file's name may have placeholders: then all of its temporary folder goes.
    """
    if is_chief(strategy):
        return
    folder, name = os.path.split(os.fspath(path).rstrip("/"))
    beside = _temporary(folder, strategy)
    _remove(beside if "{" in name else os.path.join(beside, name))
    if tf.io.gfile.exists(beside) and not tf.io.gfile.listdir(beside):
        _remove(beside)


def own_folder(folder: str | os.PathLike, strategy=None) -> str:
    """A folder inside `folder` for this task alone, which stays: for `BackupAndRestore` and for logs."""
    task_type, task_id, _ = _task(strategy)
    _make(os.fspath(folder))
    return os.path.join(os.fspath(folder), f"{task_type or 'worker'}-{task_id}")


def data_from(step: int, examples: training.Arrays, global_batch_size: int, seed: int = 0) -> tf.data.Dataset:
    """`training.training_data` without its first `step` batches: what comes after them, in the same order.

    The order is a function of `seed` and nothing else, so the number of steps done *is* the position in the
    data. Only numbers of examples are skipped, no example is read: skipping an epoch takes milliseconds.
    Raises DataError where `step` is no number of steps.
    """
    step = whole("data_from(step)", step, least=0, error=DataError)
    global_batch_size = whole("global_batch_size", global_batch_size, error=DataError)
    count = len(examples[1])
    order = tf.data.Dataset.range(count).shuffle(count, seed=seed).repeat()
    order = order.batch(global_batch_size, drop_remainder=True).skip(step)
    parts = [tf.constant(part) for part in examples]
    data = order.map(lambda numbers: tuple(tf.gather(part, numbers) for part in parts))
    return data.prefetch(2).with_options(training.dataset_options())


class Checkpoints:
    """The checkpoints of one job in `folder`: all workers save together, the chief's stay, all read those.

    folder: where every worker can read; on several machines, shared storage. model: built (its variables
    exist), from the scope of `strategy`. optimizer: the one that trains it; without one, the model's own if
    it was compiled. max_to_keep: how many stay; older ones go. objects: whatever else is to come back, by
    name (metrics, variables), made in the scope too. strategy: without one, that whose scope this is in.

    `restored` is the path that `restore` read, None before; `folder` the chief's; `latest` the newest there.
    """

    def __init__(
        self,
        folder: str | os.PathLike,
        *,
        model: keras.Model,
        optimizer: keras.Optimizer | None = None,
        max_to_keep: int = 3,
        strategy: tf.distribute.Strategy | None = None,
        **objects,
    ):
        self.strategy = strategy or tf.distribute.get_strategy()
        self.folder, self.restored = os.fspath(folder), None
        if max_to_keep is not None:
            max_to_keep = whole("max_to_keep", max_to_keep, error=DataError, cure="None keeps all of them.")
        self._model, self._optimizer = model, optimizer or getattr(model, "optimizer", None)
        self._build()
        if optimizer is not None:
            objects["optimizer"] = optimizer  # a compiled model brings its own along
        with self.strategy.scope():
            self._step = tf.Variable(0, dtype=tf.int64, trainable=False, name="step")
        objects = {name: _trackable(thing) for name, thing in objects.items()}
        self._checkpoint = tf.train.Checkpoint(model=model, step=self._step, **objects)
        self._mine = write_path(self.folder, self.strategy)
        _make(self._mine)
        self._tidy_up()
        self._last = _listed(self.folder)[
            :1
        ]  # a damaged list is told here, before the manager stumbles over it
        # The others' managers keep what they write only until it is thrown away.
        self._manager = tf.train.CheckpointManager(self._checkpoint, self._mine, max_to_keep)

    @property
    def latest(self) -> str | None:
        """The path of the newest whole checkpoint of the job, None when there is none yet.

        Raises DataError when the folder lists checkpoints and not one of them is whole: TensorFlow would
        take that for a first start.
        """
        listed = _listed(self.folder)
        whole = [path for path in listed if tf.io.gfile.glob(f"{path}.index") and _has_data(path)]
        if listed and not whole:
            raise DataError(
                f"{self.folder!r} lists {len(listed)} checkpoints, but their files are not there.",
                cause="somebody removed or moved them.",
                cure="Bring them back, or empty the folder to start anew.",
            )
        return whole[0] if whole else None

    def save(self, step: int) -> str | None:
        """The path of the checkpoint after `step` steps on the chief, None elsewhere.

        **Call it on every worker.** A checkpoint appears whole or not at all, also when the process is killed
        in the middle of it. Raises DataError where another job writes into the folder, or where the newest
        checkpoint there is further on: whoever restores takes the last one written, whatever its step.
        """
        step = whole("save(step)", step, least=0, error=DataError, cure="Give the number of steps done.")
        if is_chief(self.strategy):
            self._check_alone(step)
        self._step.assign(step)
        path = self._manager.save(checkpoint_number=step)
        if is_chief(self.strategy):
            self._last = [path]
            return path
        clean(self.folder, self.strategy)
        return None

    def restore(self) -> int:
        """The steps that are done: those of the newest checkpoint, now read into everything; 0 without one.

        **Call it on every worker**, before the first step. Raises DataError when a variable of yours is not
        in the checkpoint, or when the workers do not find the same one: TensorFlow passes over both in
        silence.
        """
        path = self.latest
        step = self._step_in(path) if path else 0
        _agree(self.strategy, step)  # before the reading, which may be a meeting of all workers as well
        if path is not None:
            self._read(path)
        self.restored, self._last = path, _listed(self.folder)[:1]
        return step

    def each_epoch(self, steps_per_epoch: int) -> keras.callbacks.Callback:
        """A callback for `fit` that saves after every epoch, on every worker."""
        return keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: self.save((epoch + 1) * steps_per_epoch)
        )

    def _build(self):
        """Variables that do not exist yet would be restored later, or never, and nobody could tell."""
        training.check_savable(self._model)
        if self._optimizer is not None and not self._optimizer.built:
            with self.strategy.scope():
                self._optimizer.build(self._model.trainable_variables)

    def _check_alone(self, step):
        """Two jobs in one folder would each resume from the other's checkpoints."""
        listed = _listed(self.folder)[:1]
        if listed != self._last:
            raise DataError(
                f"Somebody else has written {os.path.basename(listed[0])} into {self.folder!r} meanwhile."
                if listed
                else f"Somebody else has emptied {self.folder!r} meanwhile.",
                cause="another job, or an earlier start of this one that still runs.",
                cure="Give each job a folder of its own; end the other one before you start again.",
            )
        name = os.path.basename(self.latest or "")
        number = name.rpartition("-")[2]
        if number.isdigit() and int(number) > step:
            raise DataError(
                f"{self.folder!r} holds {name}, and this is to be ckpt-{step}.",
                cause="the job was started anew without restore(), or its steps are counted from 0 again.",
                cure="Call restore() and go on from what it returns, or choose another folder for a new job.",
            )

    def _step_in(self, path):
        try:
            return int(tf.train.load_variable(path, STEP))
        except (tf.errors.OpError, IndexError) as error:
            raise self._damaged(path, error) from error

    def _damaged(self, path, error):
        older = [os.path.basename(name) for name in self._manager.checkpoints if name != path]
        return DataError(
            f"The checkpoint {os.path.basename(path)} cannot be read: its files are damaged.",
            cause=str(error).splitlines()[0][:200],
            cure=f"Remove its files, so that an older one is taken: {', '.join(older) or 'there is none'}.",
        )

    def _read(self, path):
        try:
            training.read_into(self._checkpoint, path, self._model)
        except (tf.errors.DataLossError, tf.errors.OutOfRangeError, IndexError) as error:
            raise self._damaged(path, error) from error

    def _tidy_up(self):
        """Remove what a killed run may have left: unfinished files of the chief, all of the others'."""
        if not is_chief(self.strategy):
            clean(self.folder, self.strategy)
            return
        for unfinished in tf.io.gfile.glob(os.path.join(self.folder, "*_temp")):
            _remove(unfinished)


def _temporary(folder, strategy) -> str:
    task_type, task_id, _ = _task(strategy)
    return os.path.join(folder, f"{task_type}-{task_id}-temp")


def _task(strategy) -> tuple[str | None, int, set[str]]:
    """This process's type and index, and the types of tasks in its cluster."""
    strategy = strategy or tf.distribute.get_strategy()
    resolver = getattr(strategy, "cluster_resolver", strategy)
    jobs = set(resolver.cluster_spec().jobs) if hasattr(resolver, "cluster_spec") else set()
    if not jobs:
        return None, 0, jobs
    return resolver.task_type or None, resolver.task_id or 0, jobs


def _trackable(thing):
    """What TensorFlow can put into a checkpoint: of a metric of Keras 3, which it refuses, the variables."""
    return [v.value for v in thing.variables] if isinstance(thing, keras.metrics.Metric) else thing


def _agree(strategy, step) -> None:
    """Return if all workers are at the same step; else say who is where. A meeting of all workers."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return

    @tf.function
    def gather(step):
        context = tf.distribute.get_replica_context
        found = strategy.run(lambda: context().all_gather(tf.reshape(step, [1]), axis=0))
        return strategy.experimental_local_results(found)[0]

    steps = gather(tf.constant(step, tf.int32)).numpy().tolist()
    if len(set(steps)) > 1:
        raise DataError(
            f"The workers would resume at different steps: {', '.join(map(str, steps))} (in their order).",
            cause="the folder of the checkpoints is not the same one on all of them.",
            cure="Put it on storage that all machines share.",
        )


def _listed(folder) -> list[str]:
    """The paths that TensorFlow's file `checkpoint` lists, the newest first; DataError if it is damaged."""
    try:
        state = tf.train.get_checkpoint_state(folder)
    except ValueError:  # an empty file
        state = None
    if state is None and tf.io.gfile.exists(os.path.join(folder, "checkpoint")):
        raise DataError(
            f"The list of checkpoints in {folder!r}, its file `checkpoint`, cannot be read.",
            cause="it was damaged or emptied; TensorFlow would take that for a first start.",
            cure="Bring it back, or empty the folder to start anew.",
        )
    return list(reversed(state.all_model_checkpoint_paths)) if state else []


def _has_data(path) -> bool:
    return bool(tf.io.gfile.glob(f"{path}.data-*"))


def _make(folder) -> None:
    """The folder is there afterwards, and it is one."""
    if folder and tf.io.gfile.exists(folder) and not tf.io.gfile.isdir(folder):
        raise DataError(
            f"{folder!r} is a file, and checkpoints need a folder.",
            cure="Give another name, or move that file away.",
        )
    if folder:
        tf.io.gfile.makedirs(folder)  # no error where it is there already


def _remove(path) -> None:
    with contextlib.suppress(tf.errors.NotFoundError):
        if tf.io.gfile.isdir(path):
            tf.io.gfile.rmtree(path)
        else:
            tf.io.gfile.remove(path)
