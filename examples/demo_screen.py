"""How `demo.py` prints: within the width of the terminal, in colours only where they are wanted."""

import os
import shutil
import sys
import textwrap

STYLES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33}


def heading(text: str) -> None:
    print(f"\n{style(text, 'bold')}\n")


def show(line: str) -> None:
    print(f"  {line}".rstrip())


def show_text(text: str, label: str) -> None:
    for line in textwrap.wrap(text, line_width() - 2, initial_indent=label, subsequent_indent=" " * len(label)):
        show(line)


def line_width() -> int:
    return max(72, min(100, shutil.get_terminal_size().columns))


def style(text: str, name: str) -> str:
    plain = not sys.stdout.isatty() or "NO_COLOR" in os.environ
    return text if plain else f"\033[{STYLES[name]}m{text}\033[0m"
