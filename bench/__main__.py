"""`python -m bench`: every figure that must be reached, with its target.
`python -m bench peers`: the same, with other runtimes in the same rounds; `--write` refreshes the documentation.
`python -m bench local|policy|daily|effects|service|cluster`: one part in detail.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from . import cluster, daily, effects, imports, local_tools, policy, report, service
from .peers import driver
from .targets import Results, Series, judge

_ROUNDS, _LOCAL_ROUNDS = 3, 9
#: What the targets need of the other parts.
_LOCAL = ("commands", "search", "files")
_SERVER = ("throughput", "making", "starts")
_HEAD = ("figure", "measured", "target", "")


def main() -> int:
    options = _parser().parse_args()
    if options.command == "local":
        sizes = local_tools.Sizes(options.part_rounds or _LOCAL_ROUNDS)
        print(local_tools.report(options.sections or tuple(local_tools.SECTIONS), sizes))
    elif options.command == "policy":
        print(policy.report(options.part_rounds or _ROUNDS))
    elif options.command == "daily":
        daily.main(options.part_rounds or daily.ROUNDS)
    elif options.command == "effects":
        print(effects.report(effects.Sizes(rounds=options.part_rounds or effects.Sizes().rounds)))
    elif options.command == "service":
        sizes = service.Sizes(rounds=options.part_rounds or service.Sizes().rounds)
        print(service.report(options.sections or tuple(service.SECTIONS), sizes))
    elif options.command == "cluster":
        sizes = cluster.Sizes(runs=options.runs, paused=options.paused, rows=options.rows)
        print(cluster.report(options.sections or tuple(cluster.SECTIONS), sizes))
    elif options.command == "peers":
        names = options.only.split(",") if options.only else list(driver.PEERS)
        unknown = [name for name in names if name not in driver.PEERS]
        if unknown:
            print(f"error: unknown runtime {', '.join(unknown)}; known: {', '.join(driver.PEERS)}", file=sys.stderr)
            return 2
        _run_targets(options.part_rounds or _ROUNDS, names, runtimes_only=options.runtimes_only, write=options.write)
    else:
        _run_targets(options.rounds, ())
    return 0


def _run_targets(rounds: int, peers: Sequence[str], *, runtimes_only: bool = False, write: bool = False) -> None:
    """Measure everything, and print the targets; with peers also the table of all runtimes."""
    load_before = os.getloadavg()[0]
    runtimes = driver.OURS | {name: driver.PEERS[name] for name in peers}
    sections = driver.SECTIONS if peers else ("overhead", "counts", "pauses", "durable")
    measured = driver.measure(runtimes, sections, rounds, _show)
    problems = list(measured.problems)
    local: dict[str, Series] = {}
    server: dict[str, Series] = {}
    if not runtimes_only:
        sizes = service.Sizes(rounds=rounds, starts=(1_000, 100_000))
        for section in _LOCAL:
            with _reported(f"local tools, {section}", problems) as folder:
                local |= local_tools.measure(folder, local_tools.Sizes(_LOCAL_ROUNDS), [section])
        for section in _SERVER:
            with _reported(f"server, {section}", problems) as folder:
                server |= service.measure(folder, sizes, [section])
    rows = judge(Results(measured, _imports(rounds), local, server, peers))
    circumstances = report.describe(rounds, load_before)
    print(report.table([_HEAD, *rows]))
    compared = report.compare_runtimes(measured, list(runtimes))
    if peers:
        print(f"\n{report.table(compared)}\n")
        for name, packages in measured.versions.items():
            print(f"{name}: {', '.join(f'{package} {version}' for package, version in packages.items())}")
    for problem in problems:
        print(f"not measured: {problem}")
    print(f"\n{circumstances.text}")
    if write:
        report.write(report.Record(circumstances, rows, compared, measured.versions, problems))
        print("Wrote bench/results.json; `make docs` puts it into the documentation.")


@contextmanager
def _reported(part: str, problems: list[str]) -> Generator[Path]:
    """Give a part a folder. Where it cannot be measured, say so in one line, and continue with the others."""
    _show(part)
    with tempfile.TemporaryDirectory(prefix="interlock-bench-") as folder:
        try:
            yield Path(folder)
        except Exception as error:
            problems.append(f"{part}: {type(error).__name__}: {' '.join(str(error).split())[:200]}")


def _imports(rounds: int) -> Series:
    _show("imports")
    imports.import_costs()  # compiles what was not compiled yet
    costs = [imports.import_costs() for _ in range(rounds)]
    return {name: [cost[name] for cost in costs] for name in costs[0]}


def _show(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=_positive, default=_ROUNDS, help="rounds (default: %(default)s)")
    commands = parser.add_subparsers(dest="command")
    rounds = argparse.ArgumentParser(add_help=False)
    rounds.add_argument("--rounds", dest="part_rounds", type=_positive, help="rounds")
    peers = commands.add_parser("peers", parents=[rounds], help="all targets, with other runtimes in the same rounds")
    peers.add_argument("--only", default="", help="runtimes by name, with commas (default: all)")
    peers.add_argument("--runtimes-only", action="store_true", help="leave out tools, commands and the server")
    peers.add_argument("--write", action="store_true", help="write bench/results.json, which the docs are made from")
    for name, sections in (("local", local_tools.SECTIONS), ("service", service.SECTIONS)):
        part = commands.add_parser(name, parents=[rounds], help=f"sections: {', '.join(sections)}")
        part.add_argument("sections", nargs="*", choices=(*sections, []), metavar="SECTION")
    many = commands.add_parser("cluster", help=f"many hosts on Postgres: {', '.join(cluster.SECTIONS)}")
    many.add_argument("sections", nargs="*", choices=(*cluster.SECTIONS, []), metavar="SECTION")
    for name in ("runs", "paused", "rows"):
        default = getattr(cluster.Sizes(), name)
        many.add_argument(f"--{name}", type=_positive, default=default, help="how many (default: %(default)s)")
    commands.add_parser("policy", parents=[rounds], help="what deciding and asking cost")
    commands.add_parser("daily", parents=[rounds], help="questions of everyday work, by mode")
    commands.add_parser("effects", parents=[rounds], help="keeping apart, committing and undoing changes")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
