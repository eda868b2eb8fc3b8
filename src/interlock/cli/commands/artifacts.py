"""`interlock artifacts`: what the calls of runs stored, such as whole outputs."""

from pathlib import Path
from typing import Annotated, Any

import msgspec

from ...domain.errors import ConfigurationError
from ...domain.event import CallObserved
from ...domain.outcome import ArtifactRef
from ...rendering.binary import describe_binary, is_binary
from ...rendering.escaping import output_lines
from ...storage.event_log import EventLog
from ..config.logs import MIN_ID_CHARS, RunArgument, open_artifacts, resolve_run, run_with_log
from ..config.logs import shorten_artifact_id as shorten
from ..display.output import echo, echo_json, echo_list, echo_result
from ..display.run_list import read_events
from ..display.transcript import EventFormatter
from ..exit_codes import format_exit_codes
from ..options import JsonOption, LogOption, argument, create_app, option

_EXITS = format_exit_codes(ok="done", usage="bad usage, no such artifact, or a damaged one")
_ID_PREFIX = "sha256:"

app = create_app(_EXITS, is_group=True)


class _ListedArtifact(msgspec.Struct, frozen=True):
    artifact: ArtifactRef
    call_id: str
    tool: str
    about: str


@app.callback()
def artifacts() -> None:
    """List and show what the calls of runs stored, such as whole outputs.

    An artifact is named by the digest of its content.
    """


@app.command("list", epilog=_EXITS)
def list_(run: RunArgument, log: LogOption = None, as_json: JsonOption = False) -> None:
    """List the artifacts of a run, in the order of its calls."""
    found = run_with_log(log, lambda event_log: _list_artifacts(event_log, run))
    rows = [
        (shorten(each.artifact.id), each.artifact.kind, f"{each.artifact.size_bytes:,}", f"{each.tool} {each.about}")
        for each in found
    ]
    values = [
        {**msgspec.to_builtins(each.artifact), "call_id": each.call_id, "tool": each.tool, "about": each.about}
        for each in found
    ]
    echo_list(as_json, values, ("ID", "KIND", "BYTES", "CALL"), rows, empty="The run has no artifacts.")


@app.command(epilog=_EXITS)
def show(
    artifact: Annotated[str, argument("ID", "Id of an artifact, or its first 4 or more characters.")],
    output: Annotated[
        Path | None, option("New file to write the content to, byte by byte.", "--output", "-o", metavar="FILE")
    ] = None,
    log: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print an artifact as text that is safe for a terminal. Of binary content: size, type and digest."""
    prefix = artifact.removeprefix(_ID_PREFIX).lower()
    store = open_artifacts(log)
    found = store.find(prefix) if store is not None else []
    if store is None or len(found) != 1:
        raise ConfigurationError(_explain_missing(artifact, len(found)))
    content = store.read(found[0])
    facts: dict[str, Any] = {"id": found[0], "size_bytes": len(content), "is_binary": is_binary(content)}
    if output is not None:
        _write_new(output, content)
        echo_result(as_json, {**facts, "path": str(output)}, f"wrote {output}: {len(content):,} bytes, {found[0]}")
    elif as_json:
        echo_json({**facts, "text": "" if facts["is_binary"] else content.decode(errors="replace")})
    elif facts["is_binary"]:
        echo(describe_binary(content))
        echo("`--output FILE` writes its bytes.", error=True)
    else:
        for line in output_lines(content.decode(errors="replace").removesuffix("\n")) if content else ():
            print(line)


async def _list_artifacts(log: EventLog, run_ref: str) -> list[_ListedArtifact]:
    found: dict[str, _ListedArtifact] = {}
    formatter = EventFormatter()
    async for event in read_events(log, await resolve_run(log, run_ref)):
        line = formatter.format_event(event)
        if isinstance(event.fact, CallObserved) and line is not None:
            observation = event.fact.observation
            for each in observation.artifacts:
                found.setdefault(each.id, _ListedArtifact(each, observation.call_id, line.who, line.what))
    return list(found.values())


def _explain_missing(given: str, count: int) -> str:
    if count:
        return f"{given[:80]} may be any of {count:,} artifacts. Write more of it."
    return (
        f"There is no artifact {given[:80]!r}. `interlock artifacts list RUN` lists those of a run; at least "
        f"{MIN_ID_CHARS} characters of an id name one."
    )


def _write_new(path: Path, content: bytes) -> None:
    try:
        with open(path, "xb") as file:
            file.write(content)
    except FileExistsError:
        raise ConfigurationError(f"{path} already exists. Pass the name of a new file.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigurationError(f"{path} cannot be written: {reason}.") from None
