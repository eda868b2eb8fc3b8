"""The list of components has what the package installs, with version and digest, and nothing of the development."""

from scripts.sbom import LOCK, build_sbom, find_dependencies

LOCKED = (
    "first==1.0 \\\n    --hash=sha256:"
    + "a" * 64
    + "\nSecond_One==2.0rc1 ; python_version < '3.12' \\\n    --hash=sha256:"
    + "b" * 64
)


def test_components_have_versions_and_digests() -> None:
    document = build_sbom(LOCKED + "\nthird==3\n", {"first", "second-one"})

    assert [(part["purl"], part["hashes"]) for part in document["components"]] == [
        ("pkg:pypi/first@1.0", [{"alg": "SHA-256", "content": "a" * 64}]),
        ("pkg:pypi/Second_One@2.0rc1", [{"alg": "SHA-256", "content": "b" * 64}]),
    ]


def test_only_what_the_package_installs_is_listed() -> None:
    names = {part["name"] for part in build_sbom(LOCK.read_text("utf-8"), find_dependencies("interlock"))["components"]}

    assert {"msgspec", "pydantic", "pydantic-core", "starlette", "typer"} <= names
    assert not {"ruff", "pyright", "hypothesis", "mkdocs-material"} & names
