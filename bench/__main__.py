"""`python -m bench`: our own figures, those of the local tools, and what many runs cost a server.
`python -m bench local`: only the local tools.
`python -m bench daily`: questions in everyday work, by mode, and how soon a question is there.
`python -m bench effects`: what it costs to keep apart, commit and undo what a command changes.
`python -m bench service`: what a server costs, over HTTP on this machine.
`python -m bench peers`: ours in the same rounds as other people's.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from . import daily, effects, local_tools, service
from .peers import run_peers
from .rounds import NAMES, Step, measure
from .table import render

_LOCAL_ROUNDS = 9


def main() -> int:
    options = _parser().parse_args()
    if options.command == "peers":
        return run_peers(options.source, options.only, options.sections, options.rounds)
    if options.command == "local":
        return _run_local(options.sections, options.local_rounds)
    if options.command == "daily":
        daily.main(options.daily_rounds)
        return 0
    if options.command == "effects":
        print(effects.report(effects.Sizes(rounds=options.effect_rounds)))
        return 0
    if options.command == "service":
        print(service.report(options.sections or tuple(service.SECTIONS), service.Sizes()))
        return 0
    sections = [name for name in NAMES if not options.section or name in options.section]
    load_before = os.getloadavg()[0]
    readings = measure(sections, options.rounds, _show_progress)
    _clear_progress()
    print(render(readings, load_before))
    return 0 if options.section else _run_local() or _run_scale()


def _run_local(sections: Sequence[str] = (), rounds: int = _LOCAL_ROUNDS) -> int:
    """A table of its own: both sides of each ratio are measured in one process."""
    print(f"\nLocal tools\n\n{local_tools.report(sections or tuple(local_tools.SECTIONS), local_tools.Sizes(rounds))}")
    return 0


def _run_scale() -> int:
    """What many runs cost a server: its start, memory and database."""
    sizes = service.Sizes(rounds=1, starts=(1_000, 100_000))
    print(f"\nMany runs in a server\n\n{service.report(('making', 'starts'), sizes)}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rounds", type=_positive, default=5, help="default: %(default)s")
    parser.add_argument("--section", action="append", choices=NAMES, help="only this one; may be given several times")
    commands = parser.add_subparsers(dest="command")
    peers = commands.add_parser("peers", help="run the benchmark of our peers with us in it")
    peers.add_argument("--only", default="floor-gov", help="peers by name, with commas (default: %(default)s), or all")
    peers.add_argument("--sections", default="a,g,n,h,b,c,e", help="default: %(default)s")
    peers.add_argument("--rounds", type=_positive, default=3, help="default: %(default)s")
    peers.add_argument("--from", dest="source", type=Path, help="the folder that has it (default: ../shared/peers)")
    local = commands.add_parser("local", help="only what the local tools cost")
    local.add_argument("sections", nargs="*", choices=(*local_tools.SECTIONS, []), metavar="SECTION")
    local.add_argument("--rounds", dest="local_rounds", type=_positive, default=_LOCAL_ROUNDS)
    everyday = commands.add_parser("daily", help="only the questions of everyday work")
    everyday.add_argument("--rounds", dest="daily_rounds", type=_positive, default=daily.ROUNDS)
    changed = commands.add_parser("effects", help="only what it costs to keep apart, commit and undo changes")
    changed.add_argument("--rounds", dest="effect_rounds", type=_positive, default=effects.Sizes().rounds)
    served = commands.add_parser("service", help="only what a server costs")
    served.add_argument("sections", nargs="*", choices=(*service.SECTIONS, []), metavar="SECTION")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _show_progress(done: int, total: int, step: Step) -> None:
    line = f"[{done + 1}/{total}] round {step.round + 1}: {step.section}, {step.subject}"
    if sys.stderr.isatty():
        print(f"\r{line:<60}", end="", file=sys.stderr, flush=True)
    else:
        print(line, file=sys.stderr, flush=True)


def _clear_progress() -> None:
    if sys.stderr.isatty():
        print(f"\r{'':<60}\r", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
