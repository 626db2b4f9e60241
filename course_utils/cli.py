"""`course …` on the command line: thin, over plain functions."""

import math
import re
import signal
import sys
from pathlib import Path

import click

from course_utils.errors import CourseError

_RELEASED = Path(__file__).parents[1] / "RELEASE.json"
_LESSONS = click.argument("lessons", nargs=-1, metavar="[NN]...")
_FOLDER = click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="The notebooks' folder, where it is not this course's own.",
)


class _Course(click.Group):
    """Turns the course's own errors, and those of the file system, into a sentence instead of a traceback."""

    def invoke(self, context):
        try:
            return super().invoke(context)
        except CourseError as error:
            raise click.ClickException(str(error)) from None
        except ImportError as error:
            if error.name in ("fcntl", "resource"):  # of Unix; only the sandbox cannot do without
                raise click.ClickException(
                    f"`course {context.invoked_subcommand}` needs Linux or macOS. What to do: on Windows, "
                    "run it in WSL 2, which is Linux."
                ) from None
            if not (error.name or "").startswith(__package__) or not _RELEASED.is_file():
                raise
            raise click.ClickException(
                f"This copy of the course comes without `course {context.invoked_subcommand}`, which is for "
                "instructors and authors. What to do: run it in a clone of the course's repository."
            ) from None
        except BrokenPipeError:  # `course lint | head`: click ends quietly
            raise
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            raise click.ClickException(f"{where}{error.strerror or error}.") from error


def _finite(needed):
    """A callback that refuses inf and nan, which click takes for numbers, saying what is `needed`."""

    def check(_context, _option, value):
        if value is not None and not math.isfinite(value):
            raise click.BadParameter(f"{needed} is needed.")
        return value

    return check


_seconds, _number = _finite("a number of seconds"), _finite("a finite number")


def _time_span(_context, _option, value):
    from course_utils import costmodel

    try:
        if value is None or costmodel.seconds(value) > 0:
            return value
    except CourseError as error:
        raise click.BadParameter(str(error)) from None
    raise click.BadParameter(f"{value} is no time to work with: more than 0 is needed.")


_POSITIVE = click.FloatRange(0, min_open=True)
_FILE = click.Path(path_type=Path, dir_okay=False)
_TIMES = ["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%S"]


@click.group(cls=_Course, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="distributed-tensorflow-course", prog_name="course")
def main():
    """Distributed training in TensorFlow, learned by doing it."""


@main.command()
@click.option("--json", "as_json", is_flag=True, help="For programs: a list of objects.")
def doctor(as_json):
    """Say whether this machine can run the course, and the cure of each problem."""
    from course_utils import doctor as examiner
    from course_utils.notebooks import report

    checks = examiner.examine()
    if as_json:
        click.echo(examiner.as_json(checks))
    else:
        report.doctor(checks)
    if not examiner.healthy(checks):
        raise SystemExit(1)


def _script(command):
    """SCRIPT and its ARGUMENTS: what stands after SCRIPT is the script's own, as for Python and torchrun."""
    command = click.argument("arguments", nargs=-1, type=click.UNPROCESSED)(command)
    return click.argument("script")(command)


_BEFORE_SCRIPT = {"allow_interspersed_args": False}


@main.command(context_settings=_BEFORE_SCRIPT)
@click.option("--workers", type=click.IntRange(0), default=2, show_default=True)
@click.option("--chief", is_flag=True, help="A task of its own that leads; it trains too.")
@click.option("--ps", type=click.IntRange(0), default=0, help="Parameter servers.")
@click.option("--evaluator", is_flag=True, help="A task that evaluates checkpoints.")
@click.option("--devices", type=click.IntRange(1), default=1, show_default=True, help="Replicas a worker.")
@click.option("--max-restarts", type=click.IntRange(0), default=0, show_default=True)
@click.option(
    "--backoff",
    type=click.FloatRange(0),
    callback=_seconds,
    default=1,
    show_default=True,
    help="Seconds before the first restart, doubled every time.",
)
@click.option("--log-dir", type=click.Path(path_type=Path, file_okay=False), help="Each worker's output.")
@click.option("--no-pool", is_flag=True, help="Each worker is a new `python SCRIPT`; slower to start.")
@click.option("--timeout", type=click.FloatRange(0, min_open=True), callback=_seconds, help="For an attempt.")
@click.option(
    "--heartbeat",
    type=click.FloatRange(0, min_open=True),
    callback=_seconds,
    default=300,
    show_default=True,
    help="Seconds without a step or a line of output, after which the job counts as hanging.",
)
@click.option(
    "--grace",
    type=click.FloatRange(0),
    callback=_seconds,
    default=30,
    show_default=True,
    help="Seconds to write a checkpoint, from SIGTERM or Ctrl-C on.",
)
@click.option("--port", type=click.IntRange(1, 65535), help="Of the first task; the others take the next.")
@click.option("--fail", "faults", multiple=True, metavar="FAULT", help="Such as worker:1@step:40.")
@_script
def launch(script, arguments, no_pool, **options):
    """Run SCRIPT with ARGUMENTS on every worker of a job on this machine, each with its TF_CONFIG.

    What stands after SCRIPT is the script's own, with or without -- in between.
    """
    from course_utils.cluster import launcher

    arguments = _of_the_script(script, arguments)
    raise SystemExit(launcher.launch(launcher.Launch(Path(script), arguments, pool=not no_pool, **options)))


def _of_the_script(script, arguments):
    """The arguments without a -- in front; where one reads like an option of ours, say whose it is."""
    if arguments[:1] == ("--",):
        return arguments[1:]
    ours = {name for option in click.get_current_context().command.params for name in option.opts}
    for word in [word for word in arguments if word.partition("=")[0] in ours]:
        click.echo(f"{word} stands after {script}, and is handed to it.", err=True)
    return arguments


@main.group()
def deploy():
    """Write what a real cluster takes to run a script on every worker."""


def _deploys(*more):
    """A command of `deploy`, with the options of all and its own."""
    options = [
        click.option("--workers", type=int, default=2, show_default=True, help="Processes."),
        click.option("--gpus", type=int, default=0, show_default=True, help="For each worker."),
        click.option("--cpus", type=int, default=4, show_default=True, help="For each worker."),
        click.option("--time", default="1h", show_default=True, help="The time limit."),
        click.option("--max-restarts", type=int, default=3, show_default=True),
        click.option("--name", help="The job's name; else it is made from the script's."),
        click.option("--image", help="The container image that holds the script (Slurm: with pyxis)."),
        *more,
        click.option(
            "--out", type=click.Path(path_type=Path, dir_okay=False), help="Write it here, not to the screen."
        ),
        _script,
    ]

    def command(function):
        for option in reversed(options):
            function = option(function)
        return deploy.command(context_settings=_BEFORE_SCRIPT)(function)

    return command


@_deploys(
    click.option("--per-node", type=int, default=1, show_default=True, help="Workers on a machine."),
    click.option("--partition", help="Else Slurm's default one."),
)
def slurm(script, arguments, out, **options):
    """Write a script for sbatch that runs SCRIPT with ARGUMENTS on every worker.

    What stands after SCRIPT is the script's own, with or without -- in between.
    """
    from course_utils.cluster import deploy as deployer

    plan = deployer.Plan(script, _of_the_script(script, arguments), **options)
    deployer.write(deployer.slurm(plan), out)


@_deploys(
    click.option("--memory", default="16Gi", show_default=True, help="For each worker."),
    click.option("--claim", default="training", show_default=True, help="The storage that all share."),
    click.option(
        "--with", "flavour", type=click.Choice(["job", "jobset", "tfjob"]), default="job", show_default=True
    ),
)
def kubernetes(script, arguments, out, flavour, **options):
    """Write manifests for kubectl that run SCRIPT with ARGUMENTS on every worker.

    What stands after SCRIPT is the script's own, with or without -- in between.
    """
    from course_utils.cluster import deploy as deployer

    plan = deployer.Plan(script, _of_the_script(script, arguments), **options)
    deployer.write(deployer.kubernetes(plan, flavour), out)


_CALIBRATION = click.option(
    "--file",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path(".course/calibration.json"),
    show_default=True,
    help="Where the calibration is kept.",
)


@main.command()
@_CALIBRATION
def calibrate(file):
    """Measure this machine's workers, for some 20 seconds, so that `course predict` can compute."""
    from course_utils import forecast
    from course_utils.calibration import calibrate as measure

    forecast.print_calibration(measure(), file)


@main.command()
@_CALIBRATION
@click.option("--workers", type=click.IntRange(1, 1_000_000), default=1000, show_default=True)
@click.option("--network", default="10Gbit", show_default=True, help="Between the machines, each way.")
@click.option("--latency", default="20us", show_default=True, callback=_time_span, help="Of a message.")
@click.option(
    "--batch", type=click.IntRange(1, 1_000_000), default=64, show_default=True, help="Examples a worker."
)
@click.option(
    "--gradients",
    type=_POSITIVE,
    callback=_number,
    help="Megabytes of gradients; else those of the calibrated network.",
)
@click.option(
    "--per-example", callback=_time_span, help='Time an example, such as "3.75ms"; else that of this machine.'
)
@click.option(
    "--spread",
    type=click.FloatRange(0, 1),
    callback=_number,
    default=0.05,
    show_default=True,
    help="How much step times vary: standard deviation over mean.",
)
@click.option(
    "--between-failures",
    default="2160h",
    show_default=True,
    callback=_time_span,
    help="Of one worker, on average.",
)
@click.option(
    "--hours",
    type=_POSITIVE,
    callback=_number,
    default=24,
    show_default=True,
    help="Of work, for the cost of failures.",
)
def predict(file, **options):
    """Say what a step and a job would take on up to WORKERS machines, and why."""
    from course_utils import forecast

    forecast.print_forecast(file, **options)


@main.command(context_settings={"ignore_unknown_options": True})
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def lab(options):
    """Open JupyterLab on the lessons. OPTIONS are those of `jupyter lab`, such as --no-browser."""
    from course_utils import lab as opener

    opener.open_lab(options)


@main.command()
@_LESSONS
@click.option("--profile", type=click.Choice(["laptop", "full"]), default="laptop", show_default=True)
@click.option(
    "--jobs", type=click.IntRange(1), default=1, show_default=True, help="Lessons run side by side."
)
@click.option("--time-limit", type=click.FloatRange(1), callback=_seconds, help="Seconds for each lesson.")
@click.option(
    "--save-in", type=click.Path(path_type=Path, file_okay=False), help="Keep the executed notebooks here."
)
@_FOLDER
def run(lessons, profile, jobs, time_limit, save_in, folder):
    """Run lessons from top to bottom, all of them or those named, and say how each ended."""
    from course_utils.notebooks import report, sources
    from course_utils.notebooks import run as runs

    # As an interrupt would: kernels are ended and temporary folders removed on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    paths = sources.find(lessons, folder or sources.FOLDER)
    outcomes = runs.run(paths, profile=profile, jobs=jobs, time_limit=time_limit, save_in=save_in)
    if not report.follow(outcomes, total=len(paths)):
        raise SystemExit(1)


@main.command()
@_LESSONS
@click.option("--check", is_flag=True, help="Only tell which notebooks differ from their source.")
@click.option("--metadata", is_flag=True, help="Only bring the cells' metadata up to date; run nothing.")
@click.option("--time-limit", type=click.FloatRange(1), callback=_seconds, default=300, show_default=True)
@_FOLDER
def notebooks(lessons, check, metadata, time_limit, folder):
    """Build notebooks/NN_name.ipynb with outputs from notebooks/source/NN_name.py."""
    from course_utils.notebooks import build, report, sources

    paths = sources.find(lessons, folder or sources.FOLDER)
    if metadata:
        for path in paths:
            click.echo(f"{build.refresh(path).name}: metadata as in its source.")
        return
    if check:
        differing = [sentence for path in paths if (sentence := build.drift(path))]
        for sentence in differing:
            click.echo(sentence)
        raise SystemExit(1 if differing else 0)
    if not report.build(paths, time_limit):
        raise SystemExit(1)


@main.command()
@_LESSONS
@_FOLDER
def lint(lessons, folder):
    """Check lessons against the rules of the course, naming cell and line."""
    from course_utils.notebooks import lint as linter
    from course_utils.notebooks import sources

    findings = [
        found for path in sources.find(lessons, folder or sources.FOLDER) for found in linter.lint(path)
    ]
    for finding in findings:
        click.echo(str(finding))
    if findings:
        raise SystemExit(1)
    click.echo("No findings.")


@main.command("new-exercise")
@click.argument("exercise_id", metavar="NN.NAME")
@click.option("--title", default="", help='What the learner gets done, such as "Add an L2 term".')
@click.option("--signature", default="", help='Of the answer: "mean(values)"; without brackets, a value.')
@click.option("--points", type=click.IntRange(1, 100), default=2, show_default=True)
@click.option("--length", default="", help='Of an answer, such as "about 3 lines".')
def new_exercise(exercise_id, **parts):
    """Write the skeleton of the exercise NN.NAME into its lesson, for you to fill in.

    The tests refuse it until it is real: docs/adding_an_exercise.md goes through one.
    """
    from course_utils.exercises import authoring

    for path in authoring.new(exercise_id, **parts):
        click.echo(f"Written into {path.relative_to(authoring.ROOT)}")
    click.echo(
        f"What is left to do: python -m pytest tests/exercises/test_every_exercise.py -k {exercise_id}"
    )


def _memory_size(_context, _option, value):
    from course_utils.grading import options

    try:
        return options.size(value)
    except CourseError as error:
        raise click.BadParameter(str(error)) from None


@main.command()
@click.argument("submissions", type=click.Path(path_type=Path, exists=True))
@click.argument("more", nargs=-1, metavar="")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="For all results."
)
@click.option("--lessons", multiple=True, metavar="NN...", help="Those that count; else those handed in.")
@click.option("--only", multiple=True, metavar="ID,…", help="Of these, some exercises or lessons only.")
@click.option("--jobs", type=click.IntRange(1, 256), help="Answers side by side; else one for each core.")
@click.option(
    "--timeout", type=_POSITIVE, callback=_seconds, help="For each exercise, in place of its own limit."
)
@click.option("--memory", default="2GiB", show_default=True, callback=_memory_size, help="For each answer.")
@click.option("--seed", type=click.IntRange(1, 2**31 - 1), help="Of the cases; else drawn once, and kept.")
@click.option("--regrade", multiple=True, metavar="all|ID,…", help="Examine again what has not changed too.")
@click.option("--overrides", type=_FILE, help="Points by hand, a CSV file; else OUT/overrides.csv.")
@click.option("--late-policy", default="", help='Such as "10% per day, at most 50%" or "0 after 3 days".')
@click.option("--due", type=click.DateTime(_TIMES), help="When the work was due, in this machine's time.")
@click.option("--junit", type=_FILE, help="Write JUnit XML here too.")
@click.option("--assignment", default="", help="Its name in Canvas; else the lessons'.")
def grade(submissions, more, out, **told):
    """Grade all in SUBMISSIONS, a folder or a zip, and write gradebooks and feedback pages.

    Run it again after a change, or when it was stopped: only what is new is examined.
    """
    from course_utils.grading import report
    from course_utils.grading.options import Options, cores, words

    if more and not told["lessons"]:
        raise click.UsageError(f"Name one folder of submissions; {more[0]!r} is one word too many.")
    told["lessons"] += more  # --lessons 04 05
    # As an interrupt would: answers are ended, and what is done is kept.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    lists = {name: words(told.pop(name)) for name in ("lessons", "only", "regrade")}
    options = Options(**{**told, "jobs": told["jobs"] or cores()}, **lists)
    raise SystemExit(report.grade(submissions, out, options))


@main.command()
@click.argument("words", nargs=-1, required=True, metavar="OUT [NN]...")
@click.option("--lessons", multiple=True, metavar="NN...", help="Only these, as in --lessons 04 05.")
@click.option("--zip", "zipped", is_flag=True, help="Also write OUT.zip, for a learning platform.")
@click.option("--nbgrader", is_flag=True, help="Write nbgrader's course folder instead, WITH solutions.")
def release(words, lessons, **how):
    """Write the learners' copy of the course into the folder OUT: without solutions, with an id."""
    from course_utils.grading import release as releasing

    out = [word for word in words if not re.fullmatch(r"\d\d?(_\w+)?", word)]
    if len(out) != 1:
        raise click.UsageError("Name one folder, as in `course release build/release --lessons 04 05`.")
    chosen = (*lessons, *(word for word in words if word != out[0]))
    made = releasing.release(Path(out[0]), chosen, **how)
    click.echo(f"{out[0]}: release {made.id}, {len(made.lessons)} lesson{'s' * (len(made.lessons) != 1)}.")
    if how["nbgrader"]:
        click.echo(
            "It holds SOLUTIONS, for `nbgrader generate_assignment` to take out. It is not for learners."
        )
    if made.archive:
        click.echo(f"{made.archive.name}: the same as an archive.")
    if made.removed:
        click.echo(f"{made.removed.name}, of another release, was removed. For one of this release: --zip.")


@main.command("check-submission")
@click.argument("path", type=click.Path(path_type=Path))
def check_submission(path):
    """Say what grading will find in PATH: one notebook, or a folder or zip of many.

    Exit code: 0 where every file could be read, else 1.
    """
    from course_utils.grading import checking

    raise SystemExit(checking.check_submission(path))


@main.command()
@click.argument("notebook", type=click.Path(path_type=Path))
def validate(notebook):
    """Check NOTEBOOK before you hand it in: it is read as it will be for grading, and its answers are run.

    Exit code: 0 where the file could be read and all answers checked, be they right or wrong; else 1.
    """
    from course_utils.grading import checking

    raise SystemExit(checking.validate(notebook))


@main.command()
def coverage():
    """Show what the course promises to teach, with the cell and the test that prove each row."""
    from course_utils.notebooks import coverage as coverage_map
    from course_utils.notebooks import report

    if not report.coverage(coverage_map.read()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
