"""The exercises of lesson 10: who may write, and what must come back."""

import functools
import itertools
import os
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np

from course_utils.exercises import returned
from course_utils.exercises.model import Exercise, Mistake, lazy

tf = lazy("tensorflow")
keras = lazy("keras")
cluster = lazy("course_utils.cluster")


# --- 10.is_chief: in every kind of cluster ------------------------------------------------------------

ALONE = "a process without a cluster"


def clusters(random):
    """With and without a chief, with and without tasks that do not train, and no cluster at all."""
    few, many = random.choice(np.arange(2, 5), 2, replace=False).tolist()
    return [
        {"about": "workers only", "tasks": {"worker": few}},
        {"about": "a chief and workers", "tasks": {"chief": 1, "worker": many}},
        {"about": "workers and an evaluator", "tasks": {"worker": 2, "evaluator": 1}},
        {"about": "chief, worker, parameter server", "tasks": {"chief": 1, "worker": 1, "ps": 1}},
        {"about": "no cluster", "tasks": {}},
    ]


def observe_is_chief(answer, case):
    spec = tf.train.ClusterSpec(
        {kind: [f"{kind}{i}:1" for i in range(n)] for kind, n in case["tasks"].items()}
    )
    make = functools.partial(tf.distribute.cluster_resolver.SimpleClusterResolver, spec)
    if not case["tasks"]:
        return {ALONE: returned.truth(answer(make(task_type=None, task_id=None)), "is_chief")}
    return {
        f"{kind} {i}": returned.truth(answer(make(task_type=kind, task_id=i)), "is_chief")
        for kind, count in case["tasks"].items()
        for i in range(count)
    }


def expected_is_chief(case):
    names = [f"{kind} {i}" for kind, count in case["tasks"].items() for i in range(count)] or [ALONE]
    chief = next(name for name in ("chief 0", "worker 0", ALONE) if name in names)
    return {name: name == chief for name in names}


def how_many(seen):
    return sum(seen.values())


IS_CHIEF = Exercise(
    id="10.is_chief",
    title="Who is the chief?",
    points=2,
    length="about 3 lines",
    signature="is_chief(resolver)",
    hints=[
        "There are three ways to be the chief. Write each as a condition of its own.",
        "Worker 0 is the chief only if `chief` is not among `resolver.cluster_spec().jobs`.",
        "Without a cluster, `resolver.task_type` is None.",
    ],
    cases=clusters,
    observe=observe_is_chief,
    expected=expected_is_chief,
    mistakes=[
        Mistake(
            "worker 0, whatever the cluster",
            lambda r: r.task_type in (None, "worker") and not r.task_id,
            went_wrong="Where there is a task called chief, worker 0 is an ordinary worker. You made it the "
            "chief, and the real chief writes nothing.",
            try_this="Look into `resolver.cluster_spec().jobs` before worker 0 may call itself chief.",
            variants=[
                lambda r: r.task_type == "worker" and r.task_id == 0,
            ],
        ),
        Mistake(
            "only a task that is called chief",
            lambda r: r.task_type in (None, "chief"),
            went_wrong="A cluster of workers only has no task of that name. Nobody would be its chief, and "
            "nothing would be saved.",
            try_this="Where no task is called chief, worker 0 is it.",
            variants=[lambda r: r.task_type == "chief"],
        ),
        Mistake(
            "two chiefs",
            lambda r: r.task_type in (None, "chief") or (r.task_type == "worker" and r.task_id == 0),
            went_wrong="In a cluster with a chief, you have two: the chief and worker 0. Both would write to "
            "one path.",
            try_this="Worker 0 is the chief only where no task is called so.",
            variants=[lambda r: r.task_type == "chief" or (r.task_type == "worker" and r.task_id == 0)],
        ),
        Mistake(
            "number 0 of anything",
            lambda r: not r.task_id,
            went_wrong="Every type of task has a number 0. But an evaluator or a parameter server is no "
            "chief: neither of them trains.",
            try_this="Ask for the type of the task as well as for its number.",
            variants=[lambda r: r.task_id == 0, lambda r: (r.task_id or 0) < 1],
        ),
        Mistake(
            "a task that does not train",
            lambda r: r.task_type == "chief" or ("chief" not in r.cluster_spec().jobs and not r.task_id),
            went_wrong="In a cluster without a chief, yours is worker 0 and, with it, the evaluator: it has "
            "the number 0 as well.",
            try_this="Without a chief it must be *worker* 0.",
            variants=[
                lambda r: r.task_type == "chief" or ("chief" not in r.cluster_spec().jobs and r.task_id == 0)
            ],
        ),
        Mistake(
            "no cluster, no chief",
            lambda r: (
                r.task_type == "chief"
                or (r.task_type == "worker" and r.task_id == 0 and "chief" not in r.cluster_spec().jobs)
            ),
            went_wrong="Right in every cluster. But the same program without one, on a laptop, would never "
            "save anything: there is nobody else who could.",
            try_this="`task_type` is None then; that process is its own chief.",
        ),
        Mistake(
            "the other way round",
            lambda r: (
                not (
                    r.task_type in (None, "chief")
                    or (r.task_type == "worker" and r.task_id == 0 and "chief" not in r.cluster_spec().jobs)
                )
            ),
            went_wrong="You say True for everybody but the chief.",
            try_this="Turn it round.",
        ),
        Mistake(
            "everybody",
            lambda r: True,
            went_wrong=lambda case, seen, expected: (
                f"All {len(seen)} tasks call themselves chief, and would write to one path."
            ),
            try_this="Only one task of a cluster may get True.",
        ),
        Mistake(
            "nobody",
            lambda r: False,
            went_wrong="No task is the chief, so nothing is ever saved.",
            try_this="Begin with the case of a task whose type is `chief`.",
        ),
    ],
    also_right=[
        lambda r: (
            r.task_type is None
            or (r.task_type, r.task_id) == ("chief" if "chief" in r.cluster_spec().jobs else "worker", 0)
        ),
        lambda r: (
            r.task_type in (None, "chief")
            or (r.task_type == "worker" and not r.task_id and "chief" not in list(r.cluster_spec().as_dict()))
        ),
    ],
)


# --- 10.save: the write path of each worker -----------------------------------------------------------

CAME = "workers that saved"
WRITERS = "workers that wrote to the given path"
SHARED = "paths that two workers wrote to"
THERE = "what is at the path in the end"
LEFT = "files that other workers left"
WHOLE, NOTHING = "the sum over all workers", "nothing"
NUMBERED = "nothing: it is at another name, with -1 at the end"
UNKNOWN = "not known: the job stands still"
DATA = ".data-00000-of-00001"
SAVERS = 3


def paths(random):
    name = random.choice(["model", "state", "training"])
    return [{"about": f"{SAVERS} workers", "name": f"{name}-{random.integers(10, 99)}"}]


def observe_save(answer, case):
    """Three real workers, a metric that has another number on each, and a folder that they share."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "job", case["name"])
        os.mkdir(os.path.dirname(path))
        workers = cluster.LocalCluster(workers=SAVERS, output="quiet", timeout=20, log_dir=folder + "/logs")
        try:
            wrote, errors = zip(*workers.run(save_on_worker, answer, path, folder), strict=True)
        except cluster.ClusterTimeout:
            return never_met("all, but not equally often")
        except cluster.WorkerError as error:
            if isinstance(error.original, Absent):
                return never_met(error.original.came)
            raise error.original or error from None
        seen = found_on_disk(path, wrote)
        raised = next(filter(None, errors), None)
        if raised and (seen[SHARED], seen[WRITERS], seen[THERE]) == (0, [0], WHOLE):
            raise raised  # nobody got into another's way: the error has another cause
        return seen


class Absent(Exception):
    """Some workers ended without saving; those that did save wait for them."""

    came = property(lambda self: self.args[0])


def never_met(came):
    return {CAME: came, WRITERS: UNKNOWN, SHARED: UNKNOWN, THERE: UNKNOWN, LEFT: UNKNOWN}


def save_on_worker(answer, path, folder):
    """The paths that the answer wrote to on this worker, and the error that it raised after that, if any."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    worker = strategy.cluster_resolver.task_id
    with strategy.scope():
        metric = keras.metrics.Sum()
    tf.function(lambda: strategy.run(lambda: metric.update_state(10.0**worker)))()
    wrote, raised = [], None
    note = functools.partial(Path(folder, f"{worker}.came").write_text, "…")
    checkpoint = recording(wrote, note)(metric=[variable.value for variable in metric.variables])
    try:
        answer(checkpoint, path, worker == 0, worker)
    except Exception as error:
        if not wrote:
            raise
        raised = error
    if not wrote:
        tell_who_came(worker, folder)
    return wrote, raised


def tell_who_came(worker, folder):
    """Raise Absent when it is known of every worker whether it saved; after 5 seconds with what is known."""
    Path(folder, f"{worker}.absent").touch()
    end = time.monotonic() + 5
    while len(list(Path(folder).glob("[0-9].*"))) < SAVERS and time.monotonic() < end:
        time.sleep(0.02)
    raise Absent(sorted(int(mark.stem) for mark in Path(folder).glob("[0-9].came")))


def recording(wrote, note):
    """A Checkpoint that notes where it was written, and does not stop where two get into each other's way."""

    class Recording(tf.train.Checkpoint):
        def _write(self, file_prefix, options=None):  # of `write`, of `save`, and of a CheckpointManager
            path = os.path.abspath(os.fspath(file_prefix))
            wrote.append(path)
            note()
            try:
                return super()._write(file_prefix, options)
            except (OSError, tf.errors.OpError):
                return path

    return Recording


def found_on_disk(path, wrote):
    job = Path(path).parent
    used = [place for places in wrote for place in set(places)]
    chiefs = {f"{place}{ending}" for place in (path, *wrote[0]) for ending in (".index", DATA)}
    left = {str(file) for file in job.rglob("*") if file.is_file() and file.name != "checkpoint"} - chiefs
    return {
        CAME: list(range(SAVERS)),
        WRITERS: [worker for worker, places in enumerate(wrote) if path in places],
        SHARED: len({place for place in used if used.count(place) > 1}),
        THERE: what_is_at(path) if f"{path}-1" not in wrote[0] else NUMBERED,
        LEFT: len(left),
    }


def what_is_at(path):
    try:
        total = float(tf.train.load_variable(path, "metric/0/.ATTRIBUTES/VARIABLE_VALUE"))
    except (ValueError, tf.errors.OpError):
        return NOTHING
    return WHOLE if total == sum(10**worker for worker in range(SAVERS)) else f"a metric of {total:g}"


def expected_save(case):
    return {CAME: [0, 1, 2], WRITERS: [0], SHARED: 0, THERE: WHOLE, LEFT: 0}


def one_path(checkpoint, path, chief, worker):
    checkpoint.write(path)


def chief_only(checkpoint, path, chief, worker):
    if chief:
        checkpoint.write(path)


def one_path_for_others(checkpoint, path, chief, worker):
    checkpoint.write(path if chief else f"{path}-temp")


def never_cleaned(checkpoint, path, chief, worker):
    checkpoint.write(path if chief else f"{path}-temp-{worker}/ckpt")


def by_managers(checkpoint, path, chief, worker):
    mine = f"{path}-of-{worker}"
    tf.train.CheckpointManager(checkpoint, mine, 1).save()
    if not chief:
        shutil.rmtree(mine)


def own_path_for_all(checkpoint, path, chief, worker):
    checkpoint.write(f"{path}-{worker}")


def chief_stays_away(checkpoint, path, chief, worker):
    if not chief:
        checkpoint.write(path)


def only_a_path(checkpoint, path, chief, worker):
    return path if chief else f"{path}-temp-{worker}"


def beside_and_by_name(checkpoint, path, chief, worker):
    if chief:
        checkpoint.write(path)
        return
    checkpoint.write(f"{path}.of-{worker}")
    for file in Path(path).parent.glob(f"{Path(path).name}.of-{worker}.*"):
        file.unlink()


def numbered_by_save(checkpoint, path, chief, worker):
    mine = path if chief else f"{path}-temp-{worker}/ckpt"
    checkpoint.save(mine)
    if not chief:
        shutil.rmtree(os.path.dirname(mine))


def the_chief_cleans_too(checkpoint, path, chief, worker):
    mine = path if chief else f"{path}-temp-{worker}/ckpt"
    checkpoint.write(mine)
    for file in Path(mine).parent.glob(f"{Path(mine).name}.*"):
        file.unlink()


def cleaned_together(checkpoint, path, chief, worker):
    checkpoint.write(path if chief else f"{path}-temp/ckpt")
    if not chief:
        shutil.rmtree(f"{path}-temp")


def sees(**wanted):
    """Recognise by some of the lines only: when workers collide, the others are a matter of luck."""
    keys = {"came": CAME, "writers": WRITERS, "shared": SHARED, "there": THERE}

    def recognises(cases, seen, expected):
        return all(one[keys[key]] == value for one in seen for key, value in wanted.items())

    return recognises


SAVE = Exercise(
    id="10.save",
    title="Save on every worker",
    points=3,
    length="about 4 lines",
    signature="save_everywhere(checkpoint, path, chief, worker)",
    hints=[
        "There is a metric in the checkpoint. Which workers must call `checkpoint.write`?",
        "How many workers may write to `path`? Where can each of the others write, so that no two meet?",
        "Give every other worker a folder that has its number in the name, and remove it at once: "
        "`shutil.rmtree(folder)`.",
    ],
    cases=paths,
    observe=observe_save,
    expected=expected_save,
    time_limit=90,
    slow=True,
    mistakes=[
        Mistake(
            "nobody saves",
            only_a_path,
            went_wrong="No worker called `write`, so nothing is on the disk. To say where it should be "
            "is not yet to save it.",
            try_this="Call `checkpoint.write` with the path of this worker.",
            recognises=sees(came=[]),
        ),
        Mistake(
            "only the chief saves",
            chief_only,
            went_wrong="Workers 1 and 2 never called `write`. There is a metric in this checkpoint: to save "
            "it is to add it up over all workers. The chief waits for the others for ever.",
            try_this="Call `write` on every worker, with another path on each.",
            recognises=sees(came=[0]),
        ),
        Mistake(
            "the chief does not save",
            chief_stays_away,
            went_wrong="The chief never called `write`, and the others wait for it: there is a metric in "
            "this checkpoint, which is added up over all workers.",
            try_this="All workers call `write`.",
            recognises=sees(came=[1, 2]),
        ),
        Mistake(
            "one path for all",
            one_path,
            went_wrong="All three workers wrote to the same path, at the same time. Sometimes that goes "
            "well, sometimes one of them removes what another is just writing.",
            try_this="Only the chief writes to `path`.",
            recognises=sees(writers=[0, 1, 2]),
        ),
        Mistake(
            "one path for all the others",
            one_path_for_others,
            went_wrong="The chief is alone at `path`, but workers 1 and 2 both write to one other place. "
            "With two workers nobody would have noticed.",
            try_this="Let the number of the worker into the path.",
            variants=[cleaned_together],
            recognises=sees(writers=[0], shared=1),
        ),
        Mistake(
            "numbered by save",
            numbered_by_save,
            went_wrong="`checkpoint.save` counts its calls and puts the number behind the name: what was to "
            "be at `path` is at `path-1`. (That is right for a series of checkpoints, which a "
            "CheckpointManager looks after.)",
            try_this="`checkpoint.write` writes to the very path that it is given.",
            recognises=sees(writers=[], there=NUMBERED),
        ),
        Mistake(
            "the chief cleans up after itself",
            the_chief_cleans_too,
            went_wrong="All saved, each to a path of its own. But then the chief removed what it had written "
            "as well, and with it the only checkpoint that counts.",
            try_this="Only who is *not* the chief removes anything.",
            recognises=sees(writers=[0], shared=0, there=NOTHING),
        ),
        Mistake(
            "left behind",
            never_cleaned,
            went_wrong=lambda case, seen, expected: (
                f"Each worker has a path of its own, but {seen[LEFT]} files of the others stay on the disk: "
                "with each save more, each as large as the whole model."
            ),
            try_this="Who is not the chief removes what it wrote.",
            recognises=lambda cases, seen, expected: all(
                one[LEFT] != 0 and {**one, LEFT: 0} == e for one, e in zip(seen, expected, strict=True)
            ),
        ),
        Mistake(
            "nobody writes to the path",
            own_path_for_all,
            went_wrong="Every worker has a path of its own, the chief too. Who looks for the checkpoint at "
            "`path` finds nothing.",
            try_this="The chief writes to `path` itself, and what it wrote stays.",
            variants=[by_managers],
            recognises=sees(writers=[], there=NOTHING),
        ),
    ],
    also_right=[beside_and_by_name],
)


# --- 10.resume: repeat nothing, skip nothing ----------------------------------------------------------

STEPS_DONE = "steps done"
WEIGHTS = "the model's weights came back"
MOMENTUM = "the optimizer's momentum came back"
NEXT = "first example of each of the next batches"
MORE = 5


def jobs(random):
    """Cut off within the first pass over the data, in a later one, and never started."""
    early, late = int(random.integers(2, 5)), int(random.integers(9, 14))
    return [
        {
            "about": f"{done} steps done, 8 batches a pass" if done else "the first start",
            "done": done,
            "seed": seed,
        }
        for done, seed in zip((early, late, 0), random.integers(1, 100, 3).tolist(), strict=True)
    ]


def numbered(case):
    """Endless batches of 3 of 24 numbered examples, in an order that the seed fixes."""
    return tf.data.Dataset.range(24).shuffle(24, seed=case["seed"]).repeat().batch(3, drop_remainder=True)


def fresh(value=0.0):
    """A model of two weights and its optimizer, both built, and a counter."""
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, use_bias=False)])
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    optimizer.build(model.trainable_variables)
    for variable in (model.trainable_variables[0], optimizer.momentums[0]):
        variable.assign(tf.ones_like(variable) * value)
    return model, optimizer, tf.Variable(0, dtype=tf.int64)


def observe_resume(answer, case):
    """The answer in a folder with two checkpoints, an older and the newest, or in an empty one."""
    with tempfile.TemporaryDirectory() as folder:
        if case["done"]:
            leave_checkpoints(folder, case["done"])
        model, optimizer, done = fresh()
        data = answer(folder, model, optimizer, done, numbered(case))
        value = 1.0 if case["done"] else 0.0
        return {
            STEPS_DONE: int(done.numpy()),
            WEIGHTS: bool(np.all(model.trainable_variables[0].numpy() == value)),
            MOMENTUM: bool(np.all(optimizer.momentums[0].numpy() == value)),
            NEXT: firsts(data),
        }


def leave_checkpoints(folder, done):
    for name, content in checkpoint_files(done).items():
        Path(folder, name).write_bytes(content)


@functools.cache
def checkpoint_files(done):
    """A folder with an older checkpoint and the newest, as bytes: written once, for all answers."""
    with tempfile.TemporaryDirectory() as folder:
        save_twice(folder, done)
        return {file.name: file.read_bytes() for file in Path(folder).iterdir()}


def save_twice(folder, done):
    for value, steps in ((0.5, done - 1), (1.0, done)):
        model, optimizer, counter = fresh(value)
        counter.assign(steps)
        checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, done=counter)
        tf.train.CheckpointManager(checkpoint, folder, 3).save(checkpoint_number=steps)


def firsts(data):
    if not isinstance(data, tf.data.Dataset):
        raise returned.Unusable(
            f"resume should give the dataset of the batches to come, but gave {returned.describe(data)}."
        )
    return [int(np.ravel(batch)[0]) for batch in itertools.islice(iter(data), MORE)]


def expected_resume(case):
    batches = [int(batch[0]) for batch in numbered(case).take(case["done"] + MORE).as_numpy_iterator()]
    return {STEPS_DONE: case["done"], WEIGHTS: True, MOMENTUM: True, NEXT: batches[case["done"] :]}


def restored(folder, **parts):
    latest = tf.train.latest_checkpoint(folder)
    if latest:
        tf.train.Checkpoint(**parts).restore(latest).expect_partial()


def forgets_the_position(folder, model, optimizer, done, data):
    restored(folder, model=model, optimizer=optimizer, done=done)
    return data


def forgets_the_optimizer(folder, model, optimizer, done, data):
    restored(folder, model=model, done=done)
    return data.skip(int(done))


def forgets_the_counter(folder, model, optimizer, done, data):
    restored(folder, model=model, optimizer=optimizer)
    return data.skip(int(done))


def only_the_model(folder, model, optimizer, done, data):
    restored(folder, model=model)
    return data.skip(int(done))


def other_names(folder, model, optimizer, done, data):
    restored(folder, net=model, sgd=optimizer, step=done)
    return data.skip(int(done))


def restores_nothing(folder, model, optimizer, done, data):
    return data.skip(int(done))


def first_start_forgotten(folder, model, optimizer, done, data):
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, done=done)
    checkpoint.restore(tf.train.latest_checkpoint(folder)).assert_existing_objects_matched()
    return data.skip(int(done))


def first_start_consumed(folder, model, optimizer, done, data):
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, done=done)
    checkpoint.restore(tf.train.latest_checkpoint(folder)).assert_consumed()
    return data.skip(int(done))


def counts_examples(folder, model, optimizer, done, data):
    restored(folder, model=model, optimizer=optimizer, done=done)
    return data.skip(int(done) * 3)


def skips(steps):
    def one_off(folder, model, optimizer, done, data):
        restored(folder, model=model, optimizer=optimizer, done=done)
        return data.skip(max(int(done) + steps, 0))

    return one_off


def what_was_done(folder, model, optimizer, done, data):
    restored(folder, model=model, optimizer=optimizer, done=done)
    return data.take(int(done))


def starts_a_pass_anew(folder, model, optimizer, done, data):
    restored(folder, model=model, optimizer=optimizer, done=done)
    return data.skip(int(done) % 8)


def skips_too_early(folder, model, optimizer, done, data):
    rest = data.skip(int(done))
    restored(folder, model=model, optimizer=optimizer, done=done)
    return rest


def through_a_manager(folder, model, optimizer, done, data):
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, done=done)
    tf.train.CheckpointManager(checkpoint, folder, max_to_keep=3).restore_or_initialize()
    return data.skip(done)


def by_numbers(folder, model, optimizer, done, data):
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, done=done)
    checkpoint.restore(tf.train.latest_checkpoint(folder)).expect_partial()
    used = int(done.numpy())
    return data.enumerate().filter(lambda step, _: step >= used).map(lambda _, batch: batch)


RESUME = Exercise(
    id="10.resume",
    title="Resume, and repeat nothing",
    points=3,
    length="about 5 lines",
    signature="resume(folder, model, optimizer, done, data)",
    hints=[
        "First make a `tf.train.Checkpoint` with the three parts, under the names that they were saved with.",
        "`tf.train.latest_checkpoint(folder)` gives a path, or None at the first start.",
        "After restoring, `done` says how many batches were used. A dataset has a method that leaves out so "
        "many.",
    ],
    cases=jobs,
    observe=observe_resume,
    expected=expected_resume,
    slow=True,
    mistakes=[
        Mistake(
            "data position forgotten",
            forgets_the_position,
            went_wrong=lambda case, seen, expected: (
                f"All values came back, but the data begin again at the first batch. {case['done']} batches "
                "are trained on twice, and those that were next come later than they should."
            ),
            try_this="One step uses one batch: leave out as many batches as there are steps done. (Ask "
            "`done` after restoring it: before, it is 0.)",
            variants=[skips_too_early],
        ),
        Mistake(
            "optimizer forgotten",
            forgets_the_optimizer,
            went_wrong="Model and position are right, but the momentum is zero, as at the first start. The "
            "training goes on, and becomes another one, without a word.",
            try_this="The checkpoint has a third part: put the optimizer in as well.",
        ),
        Mistake(
            "steps forgotten",
            forgets_the_counter,
            went_wrong="Weights and momentum came back, but `done` still says 0, and so the data begin anew.",
            try_this="Put `done` into the `Checkpoint` as well.",
        ),
        Mistake(
            "only the model",
            only_the_model,
            went_wrong="The weights came back, and nothing else: the momentum is zero, and the training "
            "thinks that it is at step 0.",
            try_this="Restore all three: model, optimizer, done.",
        ),
        Mistake(
            "nothing restored",
            restores_nothing,
            went_wrong="Nothing came back: not the weights, not the momentum, not the steps. If you did call "
            "`restore`, the names were others than those it was saved with: TensorFlow finds no value, and "
            "says nothing.",
            try_this="Use the names `model`, `optimizer`, `done`, and let "
            "`assert_existing_objects_matched()` prove it.",
            variants=[other_names],
        ),
        Mistake(
            "the first start forgotten",
            first_start_forgotten,
            went_wrong="On a restart it works. But at the very first start the folder is empty, "
            "`latest_checkpoint` gives None, and the assertion fails: the job never begins.",
            try_this="Restore only if there is something to restore.",
            variants=[first_start_consumed],
        ),
        Mistake(
            "examples counted, not batches",
            counts_examples,
            went_wrong="You left out too much: `data` is a dataset of batches, so skipping counts batches, "
            "and one step uses one of them.",
            try_this="Do not multiply by the size of a batch.",
        ),
        Mistake(
            "one batch too many",
            skips(1),
            went_wrong="One batch is lost: neither the steps before nor those to come train on it.",
            try_this="`done` counts steps, and the first one used batch 0.",
        ),
        Mistake(
            "one batch too few",
            skips(-1),
            went_wrong="The last batch that was trained on comes a second time.",
            try_this="After `done` steps, `done` batches are used.",
        ),
        Mistake(
            "what was done, not what is to come",
            what_was_done,
            went_wrong="`take` keeps the batches that were trained on, and drops those that are to come.",
            try_this="There is a method that does the opposite.",
        ),
        Mistake(
            "every pass in one order",
            starts_a_pass_anew,
            went_wrong="Within the first pass this is right. Later it is not: the data are shuffled anew in "
            "every pass, and you gave the order of the first.",
            try_this="Leave out as many batches as there are steps done, over all passes.",
        ),
    ],
    also_right=[through_a_manager, by_numbers],
)

EXERCISES = [IS_CHIEF, SAVE, RESUME]
