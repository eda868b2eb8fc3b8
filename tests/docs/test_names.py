"""Names and versions that are written down more than once are the same everywhere."""

import ast
import re
import tomllib

import interlock

from .pages import ROOT, section, text_of


def test_the_version_is_the_same_in_package_project_changelog_and_readme() -> None:
    version = tomllib.loads(text_of("pyproject.toml"))["project"]["version"]
    released = re.findall(r"^## \[([\d.]+)\] - \d{4}-\d\d-\d\d$", text_of("CHANGELOG.md"), re.MULTILINE)
    assert (interlock.__version__, released[0]) == (version, version)
    assert f"Version {version}," in section(text_of("README.md"), "Status")


def test_the_package_and_its_stub_have_the_same_public_names() -> None:
    stub = ast.parse(text_of("src/interlock/__init__.pyi"))
    imported = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    (listed,) = [node.value for node in stub.body if isinstance(node, ast.Assign)]
    assert sorted(ast.literal_eval(listed)) == sorted(imported)

    loaded = {name: getattr(interlock, name) for name in imported}
    assert {name for name in dir(interlock) if not name.startswith("_")} - {"Any", "import_module"} - _modules() == set(
        loaded
    )
    for name, value in loaded.items():
        place = getattr(value, "__module__", "")
        if place.startswith("interlock."):
            assert f"{place}.{value.__name__}" == f"interlock.{imported[name]}"


def _modules() -> set[str]:
    """What was imported from the package is an attribute of it, too."""
    return {path.stem for path in (ROOT / "src" / "interlock").iterdir()}


def test_the_changelog_names_what_is_public() -> None:
    named = set(re.findall(r"`interlock\.(\w+)`", text_of("CHANGELOG.md")))
    assert named
    assert [name for name in sorted(named) if not hasattr(interlock, name)] == []
