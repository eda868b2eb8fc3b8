"""The commands that a shell script provably runs: plain data between the bash reader and the rules."""

import msgspec


class SimpleCommand(msgspec.Struct, frozen=True, kw_only=True):
    """One program with its words, all of them literal: what bash would execute, byte for byte."""

    argv: tuple[str, ...]
    #: The programs that were unwrapped around it, outermost first: `sudo`, `env`, `timeout`, ...
    wrappers: tuple[str, ...] = ()
    #: Variables set for it alone, `("NAME", "value")`.
    assignments: tuple[tuple[str, str], ...] = ()
    #: Folders that it may run in, relative to where the script starts or absolute; a `cd` before it may have failed.
    bases: tuple[str, ...] = ("",)
    #: Words that bash expands against the file system (`*.py`) before the program sees them.
    globs: tuple[str, ...] = ()
    #: Another command may start it: it stands in a variable, in the value of an option or in a text. Only rules that
    #: refuse or ask look at it.
    hidden: bool = False


class Redirect(msgspec.Struct, frozen=True, kw_only=True):
    """A file that the shell itself opens."""

    path: str
    writes: bool
    bases: tuple[str, ...] = ("",)


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """The commands and redirects of a script, or why they are unknown."""

    commands: tuple[SimpleCommand, ...] = ()
    redirects: tuple[Redirect, ...] = ()
    #: Why it is not known what this runs; empty when `commands` and `redirects` are all of it.
    #: What could be seen stands in `commands` even then, so that a rule may refuse it.
    opaque: str = ""


def make_word_set(text: str) -> frozenset[str]:
    """Split a text into a set of words."""
    return frozenset(text.split())
