"""JupyterLab on the lessons, with the course's settings and none of the reader's own touched."""

import json
import os
import sys
from pathlib import Path

from course_utils.notebooks import sources
from course_utils.notebooks.execute import KERNEL_ENVIRONMENT, UNWANTED

# What differs from JupyterLab's defaults: no pop-up asks for news, nothing looks for updates on the network.
SETTINGS = {
    "@jupyterlab/apputils-extension:notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
        "doNotDisturbMode": True,
    },
}


def command(folder: Path, state: Path, extra: tuple[str, ...] = ()) -> list[str]:
    """The command line that opens JupyterLab in `folder`, keeping its own state in the folder `state`."""
    first = next(iter(sorted(folder.glob("[0-9][0-9]_*.ipynb"))), None)
    return [
        sys.executable,
        "-m",
        "jupyterlab",
        f"--ServerApp.root_dir={folder}",
        f"--LabApp.default_url=/lab/tree/{first.name}" if first else "--LabApp.default_url=/lab",
        f"--LabApp.app_settings_dir={state / 'settings'}",
        f"--LabApp.user_settings_dir={state / 'user-settings'}",
        f"--LabApp.workspaces_dir={state / 'workspaces'}",
        "--LabApp.news_url=",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        *_as_root(),
        *extra,
    ]


def environment(current: dict[str, str]) -> dict[str, str]:
    """The environment of the server and its kernels: TensorFlow quiet, no TF_CONFIG, our own kernel."""
    return {name: value for name, value in current.items() if name not in UNWANTED} | KERNEL_ENVIRONMENT


def write_settings(state: Path) -> Path:
    """Path of the settings file written under `state`."""
    path = state / "settings" / "overrides.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(SETTINGS, indent=1), encoding="utf-8")
    return path


def open_lab(extra: tuple[str, ...] = (), folder: Path = sources.FOLDER) -> None:
    """Never returns: this process becomes JupyterLab. `extra` are options of `jupyter lab`, passed on."""
    state = folder.parent / ".course" / "lab"
    write_settings(state)
    os.execve(sys.executable, command(folder, state, extra), environment(dict(os.environ)))


def _as_root():
    # Containers usually run as root, where JupyterLab refuses to start. It listens on the loopback alone.
    return ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
