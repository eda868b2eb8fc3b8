"""Which files decide what a runner does, and which commands run code that they do not name."""

import pytest

from interlock import Rule, RulePolicy
from interlock.domain.decision import Verdict
from interlock.domain.tool import CallContext
from interlock.policy.engine.example_event import example_event
from interlock.policy.shell.bash import parse_script
from interlock.policy.shell.command_facts import RUNNERS, can_run_unnamed_code, find_decisive_files
from tests.each import each


def files(text: str) -> set[str]:
    script = parse_script(text)
    assert not script.opaque, script
    return {file for command in script.commands for file in find_decisive_files(command)}


@each(
    ("text", "expected"),
    [
        ("make", {"GNUmakefile", "makefile", "Makefile"}),
        ("make -j4 test", {"GNUmakefile", "makefile", "Makefile"}),
        ("npm test", {"package.json", ".npmrc"}),
        ("pnpm run build", {"package.json", ".npmrc", "pnpm-workspace.yaml"}),
        ("yarn test", {"package.json", ".yarnrc", ".yarnrc.yml"}),
        ("bun run build", {"package.json", "bunfig.toml"}),
        ("deno task build", {"deno.json", "deno.jsonc", "package.json"}),
        ("just build", {"justfile", "Justfile", ".justfile"}),
        ("nox -s lint", {"noxfile.py"}),
        ("poetry run serve", {"pyproject.toml"}),
        ("uv run serve", {"pyproject.toml", "uv.toml"}),
        ("hatch run test", {"pyproject.toml", "hatch.toml"}),
        ("go test ./...", {"go.mod", "go.work"}),
        ("mix test", {"mix.exs"}),
        ("uv pip list", set[str]()),
        ("go version", set[str]()),
        ("pre-commit run -a", {".pre-commit-config.yaml"}),
        ("docker build .", set[str]()),
        ("ls", set[str]()),
    ],
)
def test_a_runner_has_decisive_files(text: str, expected: set[str]) -> None:
    assert files(text) == expected


@each(
    ("text", "expected"),
    [
        ("pytest -q", "pyproject.toml"),
        ("pytest -q", "conftest.py"),
        ("tox -e py", "tox.ini"),
        ("docker compose up", "compose.yaml"),
        ("docker-compose up -d", "docker-compose.override.yml"),
        ("python3.12 -m pytest", "pytest.ini"),
        ("python -m pre_commit run", ".pre-commit-config.yaml"),
        ("uv run --with x pytest", "pytest.ini"),
        ("poetry run make", "Makefile"),
        ("env CI=1 timeout 5 npm test", "package.json"),
        ("./gradlew test", "build.gradle"),
        ("cargo test", "build.rs"),
        ("npx jest a", "jest.config.js"),
        ("node_modules/.bin/vitest run", "vite.config.ts"),
        ("corepack pnpm test", "package.json"),
        ("python -mpytest", "pytest.ini"),
        ("python3 -Im pytest", "conftest.py"),
        ("python -m tox", "tox.ini"),
        ("python3 -m invoke build", "tasks.py"),
        ("bundle exec rake", "Rakefile"),
    ],
)
def test_a_runner_is_found_behind_others(text: str, expected: str) -> None:
    assert expected in files(text)


@each(
    ("text", "expected"),
    [
        ("cd web && npm test", "web/package.json"),
        ("make -C lib", "lib/Makefile"),
        ("make -Clib", "lib/Makefile"),
        ("make --directory=lib", "lib/Makefile"),
        ("npm --prefix web test", "web/package.json"),
        ("cd a; make -C /srv/b", "/srv/b/Makefile"),
        ("make -C lib -f x.mk", "lib/x.mk"),
        ("make -Clib --file=x.mk", "lib/x.mk"),
        ("cd a && just -d b --justfile c.just", "a/b/c.just"),
        ("npm test -w packages/a", "packages/a/package.json"),
        ("go -C tools run ./gen", "tools/go.mod"),
        ("pytest tests/unit/test_a.py::test_x", "tests/unit/conftest.py"),
        ("pytest tests/unit/test_a.py::test_x", "tests/conftest.py"),
        ("cd api && python -m pytest tests/", "api/tests/conftest.py"),
    ],
)
def test_decisive_files_follow_the_folder(text: str, expected: str) -> None:
    assert expected in files(text)


@each(
    ("script", "bound"),
    [
        ("npm test", {"package.json", ".npmrc"}),
        ("npm run build:prod -- src", {"package.json", ".npmrc", "src"}),
        ("npm --prefix web test", {"package.json", ".npmrc", "web/package.json", "web/.npmrc", "web", "test"}),
        ("go run main.go", {"go.mod", "go.work", "main.go"}),
        ("just lint", {"justfile", "Justfile", ".justfile"}),
        ("make test", {"GNUmakefile", "makefile", "Makefile"}),
        ("make -f build.mk test", {"GNUmakefile", "makefile", "Makefile", "build.mk", "test"}),
        ("make out/app", {"GNUmakefile", "makefile", "Makefile", "out/app"}),
        ("cat test", {"test"}),
    ],
)
def test_an_approval_binds_the_file_of_a_script_and_not_its_name(script: str, bound: set[str]) -> None:
    situation = CallContext(run_id="r", workspace="/nowhere/project")
    event = example_event("bash", {"command": script}, situation)

    assert set(RulePolicy(default="ask").evaluate(event).paths) == bound


def test_a_rule_about_a_path_still_looks_at_the_name_of_a_script() -> None:
    event = example_event("bash", {"command": "make secret"}, CallContext(run_id="r", workspace="/nowhere/project"))

    assert RulePolicy([Rule(id="no", verdict="deny", path="secret")]).evaluate(event).verdict is Verdict.DENY


@pytest.mark.parametrize("text", ["mkdir -p a/b", "rm -rf x", "cp a b", "/usr/bin/touch x", "curl https://a.example"])
def test_plain_programs_name_all_they_run(text: str) -> None:
    assert [can_run_unnamed_code(command) for command in parse_script(text).commands] == [False]


@each(
    "text",
    [
        *("python3 x.py", "bash x.sh", "./x", "node a.js", "git commit -m x", "source env.sh", "unknown-program"),
        *("./mkdir x", "LD_PRELOAD=./x.so mkdir x", *RUNNERS),
    ],
)
def test_other_programs_may_run_unnamed_code(text: str) -> None:
    assert any(can_run_unnamed_code(command) for command in parse_script(text).commands)
