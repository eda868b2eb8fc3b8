"""One palette: colours are named at the top of `base.css`, and everything else uses the names."""

import re
from pathlib import Path

from interlock.server import console
from tests.each import each

_CONSOLE = Path(console.__file__).parent
_PALETTE, _, _RULES = (_CONSOLE / "static" / "base.css").read_text().partition("\n}\n")
_NAMED = (
    "aqua|beige|black|blue|brown|cyan|gold|gr[ae]y|green|lime|magenta|navy|orange|pink|purple|red|teal|white|yellow"
)
_COLOUR = re.compile(
    rf"(?<![\w&])#(?:[\da-f]{{3,4}}|[\da-f]{{6}}|[\da-f]{{8}})\b|\b(?:rgb|hsl|hwb|lab|lch|oklab|oklch|color)a?\("
    rf"|[:\"'] *(?:{_NAMED})(?=[;\"' ])",
    re.IGNORECASE,
)
_FILES = sorted(path for path in (*_CONSOLE.glob("static/*"), *_CONSOLE.glob("templates/*")) if path.suffix != ".svg")


@each("path", _FILES)
def test_colours_are_written_in_the_palette_only(path: Path) -> None:
    text = _RULES if path.name == "base.css" else path.read_text()

    assert _COLOUR.findall(text) == []


def test_the_palette_has_every_name_that_is_used() -> None:
    used = {name for path in _FILES for name in re.findall(r"var\((--[\w-]+)\)", path.read_text())}

    assert used <= set(re.findall(r"^ *(--[\w-]+):", _PALETTE, re.MULTILINE))


def test_the_icon_has_colours_of_the_palette() -> None:
    colours = set(_COLOUR.findall((_CONSOLE / "static" / "base.icon.svg").read_text()))

    assert colours
    assert colours <= set(_COLOUR.findall(_PALETTE))
