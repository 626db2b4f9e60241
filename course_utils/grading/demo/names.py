"""Names of students, as they come: long, short, in several scripts, with what programs trip over."""

ODD = (
    'Zoë "Zed" O\'Neil',
    "Robert'); DROP TABLE students;--",
    "Ada 🚀 Lovelace",
    "李小龙",
    "محمد علي",
    "Владимир Ильич",
    "=SUM(A1:A9)",
    "-rf",
    "Jean-Luc  d'Arc & Söhne",
    "<b>Bold<b> Name",
    "100% José",
    "Nguyễn Thị Minh Khai",
    "A",
    "Maximiliane-Charlotte von der Heide-Wolfenbüttel zu Hohenstein",
    "..Dotty..",
)

_FIRST = "Amara Bilal Chiara Dmitri Elif Farid Greta Hiro Ines Jonas Kofi Leila Mateo Nadia Oskar Priya Quang"
_LAST = "Abara Becker Costa Dlamini Eriksen Fuentes"

NAMES = tuple(f"{first} {last}" for last in _LAST.split() for first in _FIRST.split())
