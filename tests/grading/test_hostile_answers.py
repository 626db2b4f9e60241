"""Answers that cheat: none earns a point, each gets words to act on, and the next honest answer is right.

Each attack is code inside a wrong answer. Those that can know the right result (learned by heart, or given by
this test) are given it, so that only the way in is wrong.
"""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from course_utils.exercises import find
from course_utils.exercises.observing import LEARNER_SEED, cases_of, to_text
from course_utils.exercises.plain import plain
from course_utils.grading.model import Answer
from tests.grading.desk_parts import SEED, answer, examine, reference, with_body

BYTES, LOSS, WORKERS, STEPS = "03.bytes_per_worker", "04.compute_loss", "16.workers_for", "08.steps_per_epoch"
OUTER = Path(__file__).with_name("outer_limit.py")


@pytest.fixture(scope="module", autouse=True)
def outer_limit(runner):
    """Kills the whole family when it grows beyond what a sandbox may let through."""
    examine(runner, reference(BYTES))
    guard = subprocess.Popen([sys.executable, OUTER, str(runner._pool.process.pid)])
    yield
    assert guard.poll() is None, "the outer limit had to act"
    guard.kill()
    guard.wait(10)


def earns_nothing(runner, given, **options):
    """The result of a cheating answer, once it is seen that the next honest one is right."""
    result = examine(runner, given, **options)
    assert result.points == 0 and result.outcome in ("failed", "raised", "timed out"), result
    assert len(result.message) > 20 and len(result.try_this) > 20
    honest = examine(runner, reference(given.exercise_id))
    assert honest.outcome == "passed", honest.message
    return result


CHANGES = {
    "the course": "import course_utils as cu\ncu.check = cu.exercises = lambda *a, **k: True\nreturn 0.0",
    "the check's module": "import course_utils.exercises.verbs as v\nv.check = lambda *a: True\nreturn 0.0",
    "the judge's module": "import course_utils.exercises.judging as j\nj.judge = lambda *a: 1\nreturn 0.0",
    "the grader": "import course_utils.grading.verdicts as v\nv.verdict = lambda *a: True\nreturn 0.0",
    "NumPy": "np.allclose = np.isclose = lambda *a, **k: True\nreturn 0.0",
    "TensorFlow": "tf.reduce_sum = lambda *a, **k: 0.0\nreturn tf.reduce_sum(per_example_loss)",
    "a builtin": "import builtins\nbuiltins.all = lambda *a: True\nreturn 0.0",
}


@pytest.mark.parametrize("what", CHANGES)
def test_changing_other_code_gains_nothing(runner, what):
    result = earns_nothing(runner, with_body(LOSS, CHANGES[what]))
    assert result.look or what == "TensorFlow", "the instructor is not told"


# Each looks for the right result, gives it if it finds it, and else something wrong.
SEARCHES = {
    "the call stack": """
        import sys
        frame = sys._getframe()
        while frame is not None:
            for name, value in {**frame.f_globals, **frame.f_locals}.items():
                if "expected" in name and callable(value):
                    return value({"workers": workers, "array_bytes": array_bytes})
            frame = frame.f_back
        return 0
    """,
    "what the collector knows": """
        import gc
        for thing in gc.get_objects():
            if type(thing).__name__ == "Exercise":
                return thing.expected({"workers": workers, "array_bytes": array_bytes})["bytes sent"]
            if "expected_bytes" in getattr(thing, "__name__", ""):
                return thing({"workers": workers, "array_bytes": array_bytes})
        return 0
    """,
    "the loaded modules": """
        import sys
        for name, module in list(sys.modules.items()):
            if "lesson" in name or "solutions" in name:
                found = getattr(module, "bytes_per_worker", None) or getattr(module, "expected_bytes", None)
                if found:
                    return found(workers, array_bytes)
        return 0
    """,
    "the course's modules": """
        from course_utils.exercises import lesson_03
        return lesson_03.EXERCISES[2].expected({"workers": workers, "array_bytes": array_bytes})
    """,
    "the solutions": """
        from course_utils.solutions.lesson_03 import bytes_per_worker as ours
        return ours(workers, array_bytes)
    """,
    "the files": """
        import pathlib
        for place in (pathlib.Path(np.__file__).parents[5], pathlib.Path(cu.__file__).parents[1]):
            for path in place.rglob("lesson_03.py"):
                space = {}
                exec(path.read_text(), space)
                if "bytes_per_worker" in space:
                    return space["bytes_per_worker"](workers, array_bytes)
        return 0
    """,
}


@pytest.mark.parametrize("where", SEARCHES)
def test_the_right_result_is_not_to_be_found(runner, where):
    if where == "the files" and "namespaces" not in runner.means:
        pytest.skip("without namespaces, files of the course cannot be hidden")
    result = earns_nothing(runner, with_body(BYTES, SEARCHES[where]))
    assert result.look, "the instructor is not told"


RETURNED = {
    "equal to everything": """
        class Equal(float):
            def __eq__(self, other): return True
            def __ne__(self, other): return False
            def __hash__(self): return 0
            def __sub__(self, other): return 0.0
            __rsub__ = __abs__ = __float__ = __sub__
        return Equal(1.0)
    """,
    "an object equal to everything": """
        class Equal:
            def __eq__(self, other): return True
            def __getattr__(self, name): return self
            def __call__(self, *a, **k): return self
        return Equal()
    """,
    "NaN": 'return float("nan")',
    "infinity": 'return float("inf")',
    "a huge array": "return np.zeros(30_000_000)",
    "a huge list": "return [0.0] * 3_000_000",
    "a text": 'return "passed"',
    "None": "print('on my way')\nreturn None",
    "a generator": "return (x for x in per_example_loss)",
    "a tensor of another type": """
        return tf.cast(tf.reduce_sum(per_example_loss) / global_batch_size, tf.int32)
    """,
    "a fake record": 'return {"kind": "value", "value": 1.0}',
}


@pytest.mark.parametrize("what", RETURNED)
def test_odd_things_returned_are_no_result(runner, what):
    earns_nothing(runner, with_body(LOSS, RETURNED[what]))


def test_leaving_early_is_told(runner):
    for body in ("import sys\nsys.exit()", "exit()", "raise SystemExit('passed')", "import os\nos._exit(0)"):
        result = earns_nothing(runner, with_body(BYTES, body))
        assert result.outcome == "raised" and ("exit" in result.message.lower()), result.message
    at_once = answer(BYTES, "import sys\nsys.exit(0)\ndef bytes_per_worker(workers, array_bytes): return 1")
    assert earns_nothing(runner, at_once).where == "line 2: sys.exit(0)"


def right_records(exercise_id, seed):
    """What a right answer leads to: the records, as text."""
    exercise = find(exercise_id)
    expected = [plain(exercise.expected(case)) for case in cases_of(exercise, seed)]
    return to_text([{"kind": "value", "value": value} for value in expected])


def test_a_printed_result_is_only_printed(runner):
    records = right_records(BYTES, SEED)
    result = earns_nothing(runner, with_body(BYTES, f"print({records!r}, flush=True)\nreturn 0"))
    assert result.printed.startswith("[{")


@pytest.mark.parametrize("then", ["return 0", "os._exit(0)"])
def test_right_records_written_into_every_open_file_are_no_result(runner, then):
    body = f"""
        import os, struct
        records = {right_records(BYTES, SEED)!r}
        whole = '{{"records": ' + records + ', "idle": null, "echo": null}}'
        for text in (records, whole, "\\n" + whole, "0" * 32 + "\\n" + whole):
            for start in (b"", struct.pack("!Q", len(text)), struct.pack("q", len(text))):
                for fd in range(256):
                    try:
                        os.write(fd, start + text.encode())
                    except OSError:
                        pass
        {then}
    """
    result = earns_nothing(runner, with_body(BYTES, body))
    assert any("os.write" in sentence for sentence in result.look)


def test_records_put_into_the_list_of_records_are_no_result(runner):
    body = f"""
        import json, sys
        frame = sys._getframe()
        while frame is not None:
            if isinstance(frame.f_locals.get("records"), list) and not frame.f_locals["records"]:
                frame.f_locals["records"] += json.loads({right_records(BYTES, SEED)!r})
            frame = frame.f_back
        return 0
    """
    assert "more results than cases" in earns_nothing(runner, with_body(BYTES, body)).message


def test_eyes_that_see_only_what_is_right_are_noticed(runner):
    right = [plain(find(BYTES).expected(case)) for case in cases_of(find(BYTES), SEED)]
    body = f"""
        import itertools, sys
        right, frame = itertools.cycle({right!r}), sys._getframe()
        while frame is not None:
            if frame.f_globals.get("plain") and "observe" in frame.f_globals:
                if not hasattr(frame.f_globals["plain"], "forged"):
                    frame.f_globals["plain"] = lambda seen: next(right)
                    frame.f_globals["plain"].forged = True
            frame = frame.f_back
        return 0
    """
    result = earns_nothing(runner, with_body(BYTES, body))
    assert "was not seen as what it is" in result.message


def test_a_result_of_the_answers_own_in_place_of_the_text_is_noticed(runner):
    whole = f'{{"records": {right_records(BYTES, SEED)}, "idle": null, "echo": null}}'
    body = f"""
        import sys
        frame = sys._getframe()
        while frame is not None:
            if "encode" in frame.f_globals:
                frame.f_globals["encode"] = lambda seen: {whole!r}
            frame = frame.f_back
        return 0
    """
    assert earns_nothing(runner, with_body(BYTES, body)).look


def wrong_with(before):
    """A wrong answer, with code that runs before it is defined."""
    source = textwrap.dedent(before) + "\n" + with_body(BYTES, "return 0").source
    return answer(BYTES, source + "bytes_per_worker.mine = True")


def test_a_json_module_that_writes_the_right_records_is_not_asked(runner):
    # It spares the controls, of which it knows what they look like.
    before = f"""
        import itertools, json
        right, real = itertools.cycle(json.loads({right_records(BYTES, SEED)!r})), json.JSONEncoder.encode
        def encode(self, thing):
            is_answer = isinstance(thing, dict) and thing.get("kind") == "value"
            return real(self, next(right) if is_answer and "number" not in thing["value"] else thing)
        json.JSONEncoder.encode = encode
        json.dumps = lambda thing, **options: encode(json.JSONEncoder(), thing)
    """
    result = earns_nothing(runner, wrong_with(before))
    assert "changed" not in result.message, "it reached what was sent"
    assert any("json.dumps" in sentence for sentence in result.look)


STACK = """
    import traceback
    def _swap(right=iter({right!r})):
        for frame, _ in traceback.walk_stack(None):
            for thing in list(getattr(frame, "f_" + "locals").values()):
                if "observe" in getattr(thing, "__dict__", ()):
                    real = vars(thing)["observe"]
                    vars(thing)["observe"] = lambda answer, case, real=real: (
                        next(right) if getattr(answer, "mine", 0) else real(answer, case))
"""


@pytest.mark.parametrize("when", ["when it is defined", "when it is called"])
def test_an_exercise_on_the_stack_gets_no_other_eyes(runner, when):
    right = [plain(find(BYTES).expected(case)) for case in cases_of(find(BYTES), SEED)]
    early = when == "when it is defined"
    before = textwrap.dedent(STACK).format(right=right if early else right[1:])
    given = wrong_with(before + "_swap()\n" * early)
    if not early:
        given = answer(BYTES, given.source.replace("return 0", "_swap()\n    return 0"))
    result = earns_nothing(runner, given)
    honest = examine(runner, with_body(BYTES, "return 0"))
    assert result.about == honest.about, "the later cases were seen with its eyes"
    assert any("traceback" in sentence for sentence in result.look)
    assert any("f_locals, as text" in sentence for sentence in result.look)


def test_what_is_done_in_another_cell_is_shown_and_looked_at(runner):
    right = [plain(find(BYTES).expected(case)) for case in cases_of(find(BYTES), SEED)]
    helpers = textwrap.dedent(STACK).format(right=right)
    given = wrong_with("_swap()")
    given = Answer(BYTES, given.source, imports="import traceback", helpers=helpers)
    result = earns_nothing(runner, given)
    assert "def _swap" in result.source and "import traceback" in result.source
    assert any("imports traceback" in sentence for sentence in result.look)


def test_helpers_of_observing_that_always_give_the_right_result_are_noticed(runner):
    right = [result for _, result in results_of(BYTES, SEED)]
    body = f"""
        import itertools, sys
        right = itertools.cycle({right!r})
        for name, module in list(sys.modules.items()):
            if name.startswith("lesson_"):
                module.returned.number = lambda *a, **k: next(right)
        return 0
    """
    result = earns_nothing(runner, with_body(BYTES, body))
    assert "does nothing counted as right" in result.message


def results_of(exercise_id, seed):
    """What the reference returns, call by call."""
    exercise, given = find(exercise_id), []

    def noted(*arguments):
        given.append((arguments, exercise.reference(*arguments)))
        return given[-1][1]

    for case in cases_of(exercise, seed):
        exercise.observe(noted, case)
    return given


def by_heart(exercise_id):
    """The learner's results one by one, whatever is asked."""
    results = [result for _, result in results_of(exercise_id, LEARNER_SEED)]
    source = with_body(exercise_id, "return next(learned)").source
    return answer(exercise_id, f"learned = iter({results!r})\n\n{source}")


def table(exercise_id):
    """The learner's results, looked up by what is asked."""
    known = {repr(asked): result for asked, result in results_of(exercise_id, LEARNER_SEED)}
    names = ", ".join(find(exercise_id).parameters.parameters)
    return with_body(exercise_id, f"return {known!r}.get(repr(({names})), 0)")


@pytest.mark.parametrize(
    "learned",
    [by_heart(BYTES), by_heart(WORKERS), by_heart(STEPS), table(BYTES), table("00.global_batch_size")],
)
def test_results_learned_from_the_check_pass_there_and_nowhere_else(runner, learned):
    given = learned
    assert examine(runner, given, seed=LEARNER_SEED).outcome == "passed"
    earns_nothing(runner, given)
