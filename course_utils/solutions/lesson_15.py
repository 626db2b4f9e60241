"""Reference answers of lesson 15."""


def mean_staleness(log):
    pushes, version_of, total = 0, {}, 0
    for kind, worker in log:
        if kind == "pull":
            version_of[worker] = pushes
        else:
            total += pushes - version_of[worker]
            pushes += 1
    return total / pushes


def run_steps(coordinator, step, batches):
    promises = [coordinator.schedule(step, args=(batch,)) for batch in batches]
    coordinator.join()
    return [float(promise.fetch()) for promise in promises]


my_choice = {
    "A": ("MirroredStrategy", 3),
    "B": ("MultiWorkerMirroredStrategy", 1),
    "C": ("ParameterServerStrategy", 2),
    "D": ("CentralStorageStrategy", 4),
    "E": ("MultiWorkerMirroredStrategy", 5),
}
