import shlex

from hypothesis import given
from hypothesis import strategies as st

from interlock.tools.reports.program_detection import detect_program
from interlock.tools.reports.report_reader import is_check_program
from tests.each import each

from .recorded import CASES

RECOGNISED = {
    "pytest": (
        "pytest",
        "pytest -x tests/test_shop.py::test_total",
        "py.test",
        ".venv/bin/pytest -q",
        "python -m pytest",
        "python3.11 -X dev -Wd -m pytest -q",
        "/usr/bin/python3 -B -m pytest",
        "uv run pytest",
        "uv run --with pytest-xdist -p 3.12 pytest -n 2",
        "uv run python -m pytest",
        "poetry run pytest",
        "coverage run --branch -m pytest",
        "coverage run --source shop -m pytest -q",
        "python -m coverage run -m pytest",
        "timeout -k 5 60 pytest",
        "timeout 60s uv run pytest",
        "env -u HOME CI=1 pytest",
        "CI=1 pytest",
        "nice -n 5 pytest",
    ),
    "unittest": ("python -m unittest", "python3 -m unittest discover -s tests", "coverage run -m unittest"),
    "npm": (
        "npm test",
        "npm t",
        "npm test -- --watch=false",
        "npm run test",
        "npm run test:unit",
        "npm --prefix web test",
        "npm run typecheck",
        "yarn test",
        "yarn run test",
        "pnpm test",
        "pnpm --filter web test",
        "pnpm run test",
    ),
    "jest": ("jest", "npx jest", "npx --yes jest src", "npm exec jest", "yarn jest", "node_modules/.bin/jest"),
    "vitest": ("vitest", "vitest run", "npx vitest run", "pnpm exec vitest", "pnpm vitest run"),
    "node": ("node --test", "node --test --test-reporter=spec tests"),
    "tsc": ("tsc", "tsc --noEmit", "npx tsc -p .", "yarn tsc"),
    "go": ("go test", "go test ./...", "go -C web test", "go test -count=1 -cover", "go test . -args -c"),
    "cargo": (
        "cargo test",
        "cargo t",
        "cargo +nightly test",
        "cargo nextest run",
        "cargo build --release",
        "cargo check",
        "cargo clippy -- -D warnings",
        "cargo --color always test",
    ),
    "mypy": ("mypy", "mypy src", "python -m mypy .", "uv run mypy"),
    "ruff": ("ruff check", "ruff check src", "ruff --quiet check", "python -m ruff check", "uv run ruff check ."),
    "make": (
        "make test",
        "make check",
        "make -C web test",
        "make -j2 test-unit",
        "gmake lint",
        "make -C n test",
        "make -Cn test",
    ),
}
NOT_RECOGNISED = (
    *("", "ls", "pytest --version", "pytest --help", "python test.py", "python -c pytest", "python -m http.server"),
    *("python script.py -m pytest", "echo pytest", "cat pytest", "tox", "grep -r pytest .", "pip install pytest"),
    *("uv", "uv run", "uv add pytest", "uv pip install pytest", "poetry add pytest", "env", "timeout 60", "nice"),
    *(
        "npm",
        "npm install jest",
        "npm run build",
        "npm run",
        "yarn",
        "yarn add jest",
        "pnpm install",
        "npx",
        "npx eslint",
    ),
    *("node test.js", "go", "go build ./...", "go vet", "cargo", "cargo run", "cargo +nightly", "ruff format", "ruff"),
    *("pytest --collect-only -q", "pytest --co", "pytest -h", "pytest -qV", "pytest --fixtures", "pytest --setup-plan"),
    *(
        "python -m pytest --markers",
        "uv run pytest --co",
        "python -m unittest -h",
        "mypy -V",
        "ruff check --show-files",
    ),
    *("tsc --init", "tsc -v", "npx tsc --version", "tsc --showConfig", "jest --listTests", "npm test -- --listTests"),
    *("go test -c", "go test -list .", "go test -list=.", "cargo test --no-run", "cargo test -- --list"),
    *("cargo nextest list", "vitest list", "make -n test", "make -kn test", "make --dry-run test", "make test -q"),
    *("make", "make install", "make -f test", "bash -c pytest", "coverage report", "coverage run test.py"),
)


@each(("command", "program"), [(command, program) for program, commands in RECOGNISED.items() for command in commands])
def test_a_test_or_check_command_is_recognised(command: str, program: str) -> None:
    assert detect_program(shlex.split(command)) == program


@each("command", NOT_RECOGNISED)
def test_another_command_is_not_recognised(command: str) -> None:
    assert detect_program(shlex.split(command)) is None


@given(argv=st.lists(st.text() | st.sampled_from([word for case in CASES for word in case.command.split()])))
def test_any_words_give_a_known_program_or_none(argv: list[str]) -> None:
    program = detect_program(argv)

    assert program is None or is_check_program(program)


def test_a_long_chain_of_programs_that_run_others_is_given_up() -> None:
    assert detect_program(["env"] * 100_000 + ["pytest"]) is None
