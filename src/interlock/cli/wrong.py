"""How a command says that something went wrong: what happened, where, and what to do. One place for all of them."""

from collections.abc import Sequence

from ..domain.errors import InterlockError
from ..policy.files.places import PolicyFileError, Problem
from .show import say


def say_wrong(error: InterlockError) -> None:
    if isinstance(error, PolicyFileError):
        say_problems(error.problems)
    else:
        say(f"interlock: {error}", error=True)


def say_problems(problems: Sequence[Problem], before: str = "") -> None:
    for problem in problems:
        say(f"{before}{problem}", error=True)
