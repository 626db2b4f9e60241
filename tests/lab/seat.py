"""A learner at JupyterLab: opens a lesson, runs it, types into cells, reads what comes out.

The server is started as `make lab` starts it, on a copy of the lessons, so that nothing typed here reaches
the course; the browser is Chromium without a window, which reaches the loopback and nothing else.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Locator, Page, expect, sync_playwright

from course_utils.cluster.zygote import die_with_parent
from course_utils.notebooks import sources

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SERVER_LIMIT, PAGE_LIMIT, CELL_LIMIT, LESSON_LIMIT = 60, 90, 60, 240  # seconds; busy machines are slow

_NUMBER = re.compile(r"\[\d+\]:")  # the prompt of a cell that has run
_OPEN = (
    "import sys; from pathlib import Path; from course_utils import lab; lab.open_lab({}, Path(sys.argv[1]))"
)
_OPTIONS = ("--no-browser",)  # the port: 8888, or the next that is free
_BROWSER = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]


@contextlib.contextmanager
def jupyterlab(folder: Path) -> Iterator[str]:
    """The address, with its token, of a JupyterLab on a copy of the lessons, kept in `folder`."""
    notebooks = folder / "notebooks"
    shutil.copytree(sources.FOLDER, notebooks, ignore=shutil.ignore_patterns("source", ".*"))
    state = {f"JUPYTER_{name}_DIR": str(folder / name.lower()) for name in ("RUNTIME", "CONFIG", "DATA")}
    state["COURSE_PROGRESS"] = str(folder / "progress.json")  # not the one in which other tests have passed
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-c", _OPEN, str(notebooks), *_OPTIONS],
            env=os.environ | state | {"IPYTHONDIR": str(folder / "ipython")},
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            preexec_fn=die_with_parent,
        )
    try:
        yield _address(server, folder)
    finally:
        _end(server)


@contextlib.contextmanager
def browser_page(width: int = 1280, height: int = 1000) -> Iterator[Page]:
    """A page of a browser of our own; both end with the block."""
    with sync_playwright() as playwright:
        root = ["--no-sandbox"] if os.geteuid() == 0 else []  # which root cannot have
        with playwright.chromium.launch(executable_path=CHROMIUM, args=[*_BROWSER, *root]) as browser:
            page = browser.new_page(viewport={"width": width, "height": height})
            page.set_default_timeout(1000 * PAGE_LIMIT)
            yield page


@dataclass
class Seat:
    """One lesson open in one page."""

    page: Page

    @classmethod
    def at(cls, page: Page, address: str, lesson: str) -> "Seat":
        """The seat before `lesson` ("04_loss_scaling"), opened and connected to its kernel."""
        page.goto(address.replace("?", f"lab/tree/{lesson}.ipynb?reset&"), wait_until="domcontentloaded")
        seat = cls(page)
        page.locator(".jp-Notebook .jp-Cell").first.wait_for()
        page.get_by_text("(ipykernel) | Idle").wait_for()
        return seat

    def run_all(self) -> None:
        """None, when a new kernel has run every cell from top to bottom without an error."""
        self.page.get_by_role("menuitem", name="Run", exact=True).click()
        self.page.get_by_role("menuitem", name="Restart Kernel and Run All Cells…").click()
        self.page.get_by_role("button", name="Confirm Kernel Restart").click()
        last = self.page.locator(".jp-Notebook .jp-CodeCell .jp-InputPrompt").last
        expect(last).to_have_text(re.compile(r"\[[ *]\]:"))  # emptied, or waiting
        expect(last).to_have_text(_NUMBER, timeout=1000 * LESSON_LIMIT)

    def cell(self, text: str) -> Locator:
        """The first code cell whose own text holds `text`; the same one after its text has changed."""
        cells = self.page.locator(".jp-Notebook .jp-CodeCell")
        texts = cells.locator(".jp-InputArea-editor").all_text_contents()
        return cells.nth(next(number for number, found in enumerate(texts) if text in found))

    def write(self, cell: Locator, text: str) -> None:
        """None; what stood in the cell is replaced, as if typed."""
        editor = cell.locator(".cm-content")
        editor.scroll_into_view_if_needed()
        editor.click()
        self.page.keyboard.press("ControlOrMeta+A")
        self.page.keyboard.insert_text(text)

    def run(self, cell: Locator) -> None:
        """None, once the cell has run."""
        number = cell.locator(".jp-InputPrompt")
        before = number.inner_text()
        cell.locator(".cm-content").click()
        self.page.keyboard.press("Control+Enter")
        expect(number).not_to_have_text(before, timeout=1000 * CELL_LIMIT)
        expect(number).to_have_text(_NUMBER, timeout=1000 * CELL_LIMIT)

    def sees(self, cell: Locator, text: str) -> str:
        """All that the cell shows, once `text` is in it (capitals aside). AssertionError: it never was."""
        cell.scroll_into_view_if_needed()
        output = cell.locator(".jp-Cell-outputArea")
        expect(output).to_contain_text(text, ignore_case=True)
        return output.inner_text()


def _address(server: subprocess.Popen, folder: Path) -> str:
    end = time.monotonic() + SERVER_LIMIT
    while server.poll() is None and time.monotonic() < end:
        for file in (folder / "runtime").glob("jpserver-*.json"):
            with contextlib.suppress(json.JSONDecodeError):  # it is being written
                server_info = json.loads(file.read_text())
                return f"http://127.0.0.1:{server_info['port']}/?token={server_info['token']}"
        time.sleep(0.1)
    _end(server)
    raise AssertionError(f"JupyterLab did not start:\n{(folder / 'server.log').read_text()[-3000:]}")


def _end(server: subprocess.Popen) -> None:
    """End the server, which ends its kernels."""
    server.send_signal(signal.SIGTERM)
    try:
        server.wait(20)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
