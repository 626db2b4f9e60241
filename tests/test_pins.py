"""One truth about packages: pyproject.toml, requirements.lock, environment.yml and the environment agree."""

import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
CONDA = (ROOT / "environment.yml").read_text(encoding="utf-8")
PYTHONS = ("3.11.7", "3.12.1", "3.13.0")


def requirements(lines):
    return [Requirement(line) for line in lines if line.strip() and not line.startswith("#")]


def declared():
    project = PROJECT["project"]
    extra = [line for lines in project["optional-dependencies"].values() for line in lines]
    return requirements(project["dependencies"] + extra)


def pins(listed, python):
    """Name -> version of those that are installed for this Python on Linux."""
    system = {
        "python_full_version": python,
        "python_version": python[:4],
        "sys_platform": "linux",
        "extra": "",
    }
    system |= {"platform_system": "Linux", "os_name": "posix", "platform_machine": "x86_64"}
    chosen = [item for item in listed if item.marker is None or item.marker.evaluate(system)]
    return {canonicalize_name(item.name): str(item.specifier).removeprefix("==") for item in chosen}


def test_every_pin_is_one_exact_version():
    for item in declared() + requirements(LOCK.splitlines()):
        assert re.fullmatch(r"==[0-9A-Za-z.+]+", str(item.specifier)), item
        assert item.url is None, item


@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_holds_what_the_project_declares(python):
    locked = pins(requirements(LOCK.splitlines()), python)
    wanted = pins(declared(), python)
    assert {name: locked.get(name) for name in wanted} == wanted


@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_names_no_package_twice(python):
    chosen = [
        canonicalize_name(item.name)
        for item in requirements(LOCK.splitlines())
        if item.marker is None
        or item.marker.evaluate({"python_full_version": python, "python_version": python[:4]})
    ]
    assert sorted(chosen) == sorted(set(chosen))


def test_no_file_of_pins_holds_an_address():
    build = " ".join(PROJECT["build-system"]["requires"] + PROJECT["project"]["dependencies"])
    for text in (LOCK, CONDA, build):
        assert not re.search(r"://|index-url|find-links|--hash|@ ", text)


def test_conda_brings_python_and_pip_alone_and_the_rest_comes_from_the_lock():
    parts = yaml.safe_load(CONDA)
    plain = [item for item in parts["dependencies"] if isinstance(item, str)]
    by_pip = [item["pip"] for item in parts["dependencies"] if isinstance(item, dict)]
    assert plain == ["python=3.11", "pip"]
    assert by_pip == [["-r requirements.lock", "-e ."]]
    assert parts["name"] == PROJECT["project"]["name"]


def test_conda_s_python_and_those_of_the_tests_are_ones_that_the_project_allows():
    from packaging.specifiers import SpecifierSet

    allowed = SpecifierSet(PROJECT["project"]["requires-python"])
    assert all(allowed.contains(python) for python in PYTHONS)
    assert not allowed.contains("3.10.9")
    assert not allowed.contains("3.14.0")


def test_what_is_installed_is_what_is_locked():
    import platform

    locked = pins(requirements(LOCK.splitlines()), platform.python_version())
    installed = {}
    for name in locked:
        try:
            installed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            installed[name] = "missing"
    assert installed == locked


def test_nothing_is_installed_that_is_not_locked():
    locked = {canonicalize_name(item.name) for item in requirements(LOCK.splitlines())}
    own = {canonicalize_name(PROJECT["project"]["name"]), "pip", "setuptools", "wheel"}
    installed = {canonicalize_name(found.metadata["Name"]) for found in importlib.metadata.distributions()}
    assert installed - locked - own == set()


def test_the_makefile_and_the_project_claim_the_same_pythons():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert PROJECT["project"]["requires-python"] == ">=3.11,<3.14"
    assert "(3, 11) <= sys.version_info[:2] <= (3, 13)" in makefile
