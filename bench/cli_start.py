"""`python -m bench.cli_start`: what `interlock --help` costs, next to the import of the library it is made with."""

import statistics
import subprocess
import sys
import tempfile
from time import perf_counter

ROUNDS = 15
#: The best of a round counts: everything else is what the machine did meanwhile.
_TRIES = 3
HELP = ("-c", "from interlock.cli.main import main; main()", "--help")
IMPORT = ("-c", "import typer")


def ratio(rounds: int = ROUNDS) -> tuple[float, float, float]:
    """Milliseconds of help, of the import, and how many times one is the other: the median of alternating rounds."""
    with tempfile.TemporaryDirectory() as elsewhere:
        pairs = [(_best_ms(HELP, elsewhere), _best_ms(IMPORT, elsewhere)) for _ in range(rounds)]
    return (
        statistics.median(help_ms for help_ms, _ in pairs),
        statistics.median(import_ms for _, import_ms in pairs),
        statistics.median(help_ms / import_ms for help_ms, import_ms in pairs),
    )


def _best_ms(words: tuple[str, ...], folder: str) -> float:
    return min(_ms(words, folder) for _ in range(_TRIES))


def _ms(words: tuple[str, ...], folder: str) -> float:
    began = perf_counter()
    subprocess.run([sys.executable, *words], cwd=folder, stdout=subprocess.DEVNULL, check=True, timeout=60)
    return (perf_counter() - began) * 1e3


def main() -> None:
    help_ms, import_ms, times = ratio()
    print(f"interlock --help {help_ms:.1f} ms, import typer {import_ms:.1f} ms: {times:.2f} times (to reach: 2)")


if __name__ == "__main__":
    main()
