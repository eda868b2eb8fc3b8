"""The files in `deploy`: what they start exists, with these options."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from interlock.cli.commands import database, serve, worker

FOLDER = Path(__file__).parents[2] / "deploy"
COMMANDS: dict[str, Any] = {
    "database": get_command(database.app),
    "serve": get_command(serve.app),
    "worker": get_command(worker.app),
}


def list_commands(service: dict[str, Any]) -> Iterator[list[str]]:
    """Yield the words behind each `interlock` that a service starts."""
    words = [str(word) for word in service.get("command", [])]
    if service.get("entrypoint") == ["interlock"]:
        yield words
        return
    for line in " ".join(words).split("&&"):
        if line.strip().startswith("interlock "):
            yield shlex.split(line)[1:]


@pytest.mark.parametrize("file", sorted(FOLDER.glob("compose*.yaml")), ids=lambda path: path.name)
def test_compose_files_are_consistent(file: Path) -> None:
    document = yaml.safe_load(file.read_text())
    services: dict[str, Any] = document["services"]

    assert set(document) <= {"services", "volumes", "x-server", "x-worker"}
    for service in services.values():
        assert ("build" in service) != ("image" in service)
        assert set(service.get("depends_on", {})) <= set(services)
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            assert source.startswith(".") or source in document["volumes"]


def test_commands_of_the_cluster_have_these_options() -> None:
    services = yaml.safe_load((FOLDER / "compose.cluster.yaml").read_text())["services"]
    found = [words for service in services.values() for words in list_commands(service)]

    assert sorted({words[0] for words in found}) == ["database", "serve", "worker"]
    for name, *words in found:
        command = COMMANDS[name]
        if name == "database":
            command = command.commands[words.pop(0)]
        given = {word for word in words if word.startswith("--")}
        assert given <= {option for parameter in command.params for option in parameter.opts}
