"""Names and versions that are written down more than once are the same everywhere."""

import ast
import importlib
import re
import subprocess
import sys
import tomllib

import pytest

import interlock
from interlock import errors
from interlock.domain import errors as domain_errors
from tests.patience import HANG_SECONDS

from .pages import text_of

PACKAGES = (
    "interlock",
    *(f"interlock.{name}" for name in ("audit", "client", "models", "policy", "replay", "storage")),
)


def test_the_version_is_the_same_in_package_project_changelog_and_readme() -> None:
    project = tomllib.loads(text_of("pyproject.toml"))
    version = interlock.__version__
    released = re.findall(r"^## \[([\d.]+)\] - \d{4}-\d\d-\d\d$", text_of("CHANGELOG.md"), re.MULTILINE)
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["hatch"]["version"] == {"path": "src/interlock/__init__.py"}
    assert released[0] == version
    assert f"Status: **alpha**, version {version}," in text_of("README.md")


@pytest.mark.parametrize("name", PACKAGES)
def test_package_and_stub_have_the_same_names(name: str) -> None:
    package = importlib.import_module(name)
    folder = "/".join(["src", *name.split(".")])
    stub = ast.parse(text_of(f"{folder}/__init__.pyi"))
    imported = {
        alias.asname or alias.name: f"{'.' * node.level}{node.module}:{alias.name}"
        for node in stub.body
        if isinstance(node, ast.ImportFrom) and node.level and node.module
        for alias in node.names
    }
    (listed,) = [node.value for node in stub.body if isinstance(node, ast.Assign)]
    assert sorted(ast.literal_eval(listed)) == sorted(package.__all__)
    assert set(package.__all__) <= set(imported)
    assert set(vars(package)["_modules"]) == set(imported)
    for public, place in imported.items():
        module, _, defined = place.partition(":")
        assert getattr(package, public) is getattr(importlib.import_module(module, name), defined), public


def test_public_names_are_few_and_documented() -> None:
    """A class without a docstring shows that of its base, so it must have one itself."""
    assert len(interlock.__all__) <= 40
    assert set(interlock.__all__) <= set(dir(interlock))
    undocumented: list[str] = []
    for name in interlock.__all__:
        value = getattr(interlock, name)
        doc = vars(value).get("__doc__") if isinstance(value, type) else value.__doc__
        if not doc:
            undocumented.append(name)
    assert undocumented == []


def test_old_flat_names_are_importable() -> None:
    for name in ("ToolIntent", "ConfigurationError", "verify", "dry_run", "ServedAgent"):
        assert name not in interlock.__all__
        assert getattr(interlock, name) is not None
    with pytest.raises(AttributeError, match="module 'interlock' has no attribute 'Nothing'"):
        _ = interlock.Nothing  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]


def test_submodule_of_the_same_name_hides_no_public_name() -> None:
    for package, name in (("audit", "verify"), ("replay", "dry_run"), ("replay", "export_test")):
        importlib.import_module(f"interlock.{package}.{name}")
        assert callable(getattr(importlib.import_module(f"interlock.{package}"), name))


def test_errors_are_those_of_the_domain() -> None:
    declared = {name for name, value in vars(domain_errors).items() if isinstance(value, type)}
    assert declared | {"PolicyFileError"} == set(errors.__all__)


_WITHOUT_EXTRAS = """
import sys
for name in ("anthropic", "cel", "httpx2", "openai", "re2", "rich", "starlette", "tree_sitter", "yaml"):
    sys.modules[name] = None

import pydoc
import interlock
from interlock import *

for name in interlock.__all__:
    assert name in globals(), name
shown = pydoc.render_doc(interlock, renderer=pydoc.plaintext)
assert interlock.errors.ConfigurationError is interlock.ConfigurationError
assert "class Runner" in shown and "class OpenAIChat" in shown
for used, extra in ((OpenAIChat, "openai"), (AnthropicMessages, "anthropic"), (load_policy, "policy"),
                    (TerminalInteractionProvider, "cli"), (skills, "policy")):
    try:
        used("x")
    except interlock.ConfigurationError as error:
        assert str(error) == (
            f"{used.__name__} needs an extra that is not installed: pip install 'interlock[{extra}]'"
        ), error
    else:
        raise AssertionError(used)
print("ok")
"""


def test_help_and_star_import_work_without_extras() -> None:
    command = [sys.executable, "-c", _WITHOUT_EXTRAS]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANG_SECONDS)
    assert (done.stdout, done.stderr) == ("ok\n", "")


def test_the_changelog_names_what_is_public() -> None:
    named = set(re.findall(r"`interlock\.(\w+)`", text_of("CHANGELOG.md")))
    assert named
    assert [name for name in sorted(named) if not hasattr(interlock, name)] == []
