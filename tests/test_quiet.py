"""TensorFlow's import writes nothing to stderr after `import course_utils`, and everything when it fails."""

import os
import subprocess
import sys

import pytest


def python(code, **environment):
    clean = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env=clean | environment,
    )


@pytest.mark.parametrize("inherited", [{}, {"TF_CPP_MIN_LOG_LEVEL": "3"}])
def test_tensorflow_is_imported_and_started_without_a_word(inherited):
    code = "import course_utils, tensorflow as tf; print(tf.config.list_logical_devices('CPU')[0].name)"
    done = python(code, **inherited)
    assert done.stdout.strip() == "/device:CPU:0"
    assert done.stderr == ""


def test_a_log_level_that_is_set_is_left_alone():
    done = python(
        "import course_utils, os; print(os.environ['TF_CPP_MIN_LOG_LEVEL'])", TF_CPP_MIN_LOG_LEVEL="0"
    )
    assert done.stdout.strip() == "0"


@pytest.fixture
def broken_tensorflow(tmp_path):
    package = tmp_path / "tensorflow"
    package.mkdir()
    code = "import os\nos.write(2, b'library missing\\n')\nraise ImportError('cannot load')\n"
    (package / "__init__.py").write_text(code)
    return tmp_path


def test_a_failing_import_shows_what_it_wrote(broken_tensorflow):
    done = python("import course_utils, tensorflow", PYTHONPATH=str(broken_tensorflow))
    assert done.returncode == 1
    assert "library missing" in done.stderr
    assert "ImportError: cannot load" in done.stderr
