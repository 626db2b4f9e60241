"""What a file is that should be a notebook and is not: told by its first bytes, not by its name."""

import re

DOWNLOAD = "Hand in the notebook itself: in JupyterLab, File → Download (the name ends in .ipynb)."

_SIGNATURES = {
    b"%PDF": "a PDF document",
    b"\xd0\xcf\x11\xe0": "an old Word or Excel document",
    b"{\\rtf": "an RTF document",
    b"\x89PNG": "a picture (PNG)",
    b"\xff\xd8\xff": "a picture (JPEG)",
    b"GIF8": "a picture (GIF)",
    b"\x1f\x8b": "a compressed archive (gzip)",
    b"7z\xbc\xaf\x27\x1c": "a 7-Zip archive",
    b"Rar!": "a RAR archive",
    b"BZh": "a compressed archive (bzip2)",
    b"\xfd7zXZ": "a compressed archive (xz)",
    b"\x7fELF": "a program",
    b"MZ": "a program for Windows",
    b"bplist": "a link or setting of macOS",
    b"version https://git-lfs": "a placeholder of Git LFS, not the file that it stands for",
}
_INSIDE_ZIP = ((b"word/", "a Word document"), (b"xl/", "an Excel sheet"), (b"ppt/", "a presentation"))
_PAGE = (b"<!doctype html", b"<html", b"<head", b"<body", b"<!--", b"<?xml")
_SCRIPT = re.compile(r"^(# %%|# In\[|#!.*python|import \w|from \w+ import |def \w+\()", re.MULTILINE)


def looks_like(head: bytes) -> str:
    """What a file with these first bytes is, as "a PDF document"; empty if nothing is known of it."""
    for signature, kind in _SIGNATURES.items():
        if head.startswith(signature):
            return kind
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return next((kind for mark, kind in _INSIDE_ZIP if mark in head), "a zip archive")
    if head[257:262] == b"ustar":
        return "a tar archive"
    if head.removeprefix(b"\xef\xbb\xbf").lstrip().lower().startswith(_PAGE):
        return "a web page (HTML)"
    return "nothing but zero bytes" if head and not head.strip(b"\0") else ""


def is_script(text: str) -> bool:
    """Whether the text reads like a Python file, such as the script that a notebook is exported to."""
    return bool(_SCRIPT.search(text[:20_000]))


def advice(kind: str) -> str:
    """What to do when the file is of that kind."""
    if "zero bytes" in kind:
        return "It was damaged when it was copied. Open the original, save it, and hand it in again."
    if "archive" in kind:
        return "Hand in the notebook itself, or a zip (named .zip) with the notebook in it."
    return DOWNLOAD
