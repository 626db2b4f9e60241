"""A small lesson that keeps every rule, for tests to break in one place at a time."""

import pytest

from course_utils.notebooks import rules

_OPENING = """\
# %% [markdown]
# # 90 · Does one and one make two?
#
# One, and another one.

# %%
import course_utils as cu

# %% tags=["parameters"]
profile = "laptop"

# %% [markdown]
# ### Predict
#
# Write your guess down.

# %% tags=["predict"]
my_guess = None
"""
_SECTION = """
# %% [markdown]
# ## Finding {0}

# %%
print({0})
"""
_ENDING = """
# %% [markdown]
# ## Exercise 90.1 · The sum
#
# About 1 line.

# %% tags=["exercise"] exercise_id="90.total"
def total(a, b):
    ...

# %%
cu.check("90.total", total)

# %% [markdown]
# ## What must be true now

# %%
assert 1 + 1 == 2

# %% [markdown]
# > **Take away.** It does.
"""
GOOD = _OPENING + "".join(_SECTION.format(number) for number in range(1, 9)) + _ENDING


@pytest.fixture
def folder(tmp_path):
    """An empty `notebooks/` folder."""
    (tmp_path / "notebooks" / "source").mkdir(parents=True)
    return tmp_path / "notebooks"


@pytest.fixture
def write(folder):
    """Writes a lesson's source and returns its path; without text, the lesson that keeps every rule."""

    def write(text=GOOD, name="90_one_and_one"):
        path = folder / "source" / f"{name}.py"
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture
def good():
    """The text of a lesson that keeps every rule."""
    return GOOD


@pytest.fixture
def one_exercise(monkeypatch):
    """Makes "90.total" the course's only exercise."""
    monkeypatch.setattr(rules, "known_exercises", lambda: {"90.total"})
