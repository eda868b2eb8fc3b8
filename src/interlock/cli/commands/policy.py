"""`interlock policy`: what people do with policies at a terminal.

Exit codes, for all of them: 0 is fine; 1 is negative (the policy denies, a file or an example is wrong, decisions
flip); 2 is a question that cannot be answered: bad usage, or a file that cannot be read.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import time_ns
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, cast

import msgspec
import typer

from ...domain import json
from ...domain.decision import Verdict
from ...domain.errors import ConfigurationError
from ...domain.suggestions import suggest_name
from ...domain.tool import CallContext, JsonObject, PermissionMode, Risk
from ...policy.analysis.backtest import backtest
from ...policy.analysis.explain import describe_egress_rule, describe_rule, explain
from ...policy.analysis.recorded_calls import read_recorded_calls, read_recorded_requests
from ...policy.analysis.suggestions import find_suggestions
from ...policy.engine.example_event import TOOL_DEFAULTS, ToolDeclaration, example_event
from ...policy.files.document import json_schema, parse_document
from ...policy.files.examples import check_examples
from ...policy.files.layer_compiler import LAYER_LABELS, Layer, compile_layer
from ...policy.files.policy_files import PolicyFiles, check_file, read_layer
from ...policy.files.source import PolicyFileError, parse_source, read_policy_file
from ...policy.files.yaml_text import to_yaml
from ...policy.importers.claude import import_claude
from ...policy.importers.codex import import_codex
from ...policy.importers.gemini import import_gemini
from ...rendering.text import pluralize
from ...storage.budgets import read_usage
from ..config.logs import Recordings, find_default_log, has_log, read_recordings, run_with_log
from ..config.policy_files import (
    POLICY_EXIT_CODES,
    LayerOption,
    ManagedOption,
    PolicyFileArgument,
    ProjectOption,
    SessionOption,
    UserOption,
    choose_user_file,
    load_named_policy,
    load_policy,
    require_valid,
)
from ..config.settings import load_settings
from ..config.user_paths import find_user_paths
from ..display.output import echo, echo_json, echo_notice, echo_problems, echo_result
from ..display.policy_output import (
    echo_backtest,
    echo_budgets,
    echo_explanation,
    echo_rules,
    echo_suggestions,
)
from ..exit_codes import ExitCode
from ..options import JsonOption, LogOption, argument, create_app, option
from ..session.trust import resolve_project

LogsOption: TypeAlias = Annotated[
    list[Path] | None,
    option(
        "Log (runs.db) or export (runs.ndjson) to read. Repeatable. Default: the log of `interlock run`.",
        "--log",
        metavar="FILE",
    ),
]


_IMPORTERS = {"claude": import_claude, "codex": import_codex, "gemini": import_gemini}


app = create_app(POLICY_EXIT_CODES, is_group=True)


@app.command(epilog=POLICY_EXIT_CODES)
def check(
    files: Annotated[list[Path], argument("FILE...", "Policy files, YAML or TOML.")],
    layer: LayerOption = "user",
    as_json: JsonOption = False,
) -> None:
    """Say what is wrong with policy files, line by line."""
    found = [_check_policy_file(str(path), layer) for path in files]
    if as_json:
        echo_json(found)
    else:
        for each in found:
            echo_problems(each["problems"])
            echo_problems(each["warnings"], "warning: ")
            if not each["problems"]:
                budgets = f", {pluralize(each['budgets'], 'budget')}" if each["budgets"] else ""
                echo(f"{each['path']}: valid, {pluralize(each['rules'], 'rule')}{budgets}")
    if any(each["problems"] for each in found):
        raise typer.Exit(ExitCode.USAGE if any(each["unreadable"] for each in found) else ExitCode.FAILED)


def _check_policy_file(path: str, layer: Layer) -> dict[str, Any]:
    result: dict[str, Any] = {
        "path": path,
        "rules": 0,
        "budgets": 0,
        "problems": (),
        "warnings": (),
        "unreadable": False,
    }
    try:
        read_policy_file(path)
    except PolicyFileError as error:
        return result | {"problems": error.problems, "unreadable": True}
    try:
        report = check_file(path, layer)
    except PolicyFileError as error:
        return result | {"problems": error.problems}
    counts = {"rules": len(report.rules) + len(report.egress), "budgets": len(report.budgets)}
    return result | counts | {"warnings": report.warnings}


@app.command("test", epilog=POLICY_EXIT_CODES)
def run_examples(file: PolicyFileArgument, layer: LayerOption = "user", as_json: JsonOption = False) -> None:
    """Run the examples of all rules of a file."""
    content = read_policy_file(str(file))
    try:
        source = parse_source(content, str(file))
        read = compile_layer(source, parse_document(source), layer, time_ns)
    except PolicyFileError as error:
        echo_problems(error.problems)
        raise typer.Exit(ExitCode.FAILED) from None
    failing = check_examples(source, read.located_rules, read.resources)
    counts = {each.rule.id: len(each.entry.matches) + len(each.entry.does_not_match) for each in read.located_rules}
    count, without = sum(counts.values()), [rule_id for rule_id, examples in counts.items() if not examples]
    if as_json:
        echo_json({"path": str(file), "examples": count, "failing": failing, "without_examples": without})
    else:
        echo_problems(failing)
        echo(f"{count} examples, {len(failing) or 'none'} of them wrong")
        if without:
            echo(f"rules without examples: {', '.join(without)}")
    if failing:
        raise typer.Exit(ExitCode.FAILED)


@app.command("explain", epilog=POLICY_EXIT_CODES)
def explain_call(  # noqa: PLR0913 - one for each option
    tool: Annotated[str, argument("TOOL", "Name of the tool.")],
    args: Annotated[str, argument("ARGS", "Arguments as a JSON object; for bash, the command.")] = "{}",
    *,
    policy: Annotated[Path | None, typer.Option(metavar="FILE", help="Policy file; the same as --user.")] = None,
    managed: ManagedOption = None,
    user: UserOption = None,
    project: ProjectOption = None,
    session: SessionOption = None,
    mode: Annotated[PermissionMode | None, option("Permission mode. Default: the configured one.")] = None,
    agent: Annotated[str, typer.Option(metavar="NAME", help="Name of the agent.")] = "",
    workspace: Annotated[
        Path, typer.Option(metavar="DIR", help="Workspace of the run. Default: this directory.")
    ] = Path(),
    interactive: Annotated[bool, typer.Option("--interactive", help="Assume that a person can be asked.")] = False,
    risk: Annotated[list[Risk] | None, typer.Option(help="Risk that the tool declares. Repeatable.")] = None,
    origin: Annotated[
        Literal["local", "mcp", "skill", "extension"], typer.Option(help="Origin of the tool.")
    ] = "local",
    server: Annotated[str, typer.Option(help="MCP server, skill folder or extension of the tool.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Say what is decided about a call, and why.

    Every rule that speaks, part by part, and where each is enforced. Without a named file: as `interlock run` here.
    Nothing is executed.
    """
    applied = _load_policy(managed, choose_user_file(policy, user), project, session, workspace)
    files, folder = applied.files, os.path.abspath(workspace)
    context = CallContext(
        run_id="run_explain", agent=agent, mode=mode or applied.mode, workspace=folder, interactive=interactive
    )
    if tool not in TOOL_DEFAULTS and (hint := suggest_name(tool, TOOL_DEFAULTS)):
        echo_notice(f"`{tool}` is not a built-in tool, and is judged by --risk. {hint}")
    declared: ToolDeclaration = {"origin": origin, "source": server}
    if risk is not None:
        declared["risk"] = risk
    event = example_event(tool, _parse_arguments(tool, args), context, **declared)
    explanation = msgspec.structs.replace(explain(files.policy, event), decision=files.evaluate(event))
    if as_json:
        echo_json(explanation)
    else:
        echo_explanation(explanation)
    if explanation.decision.verdict is Verdict.DENY:
        raise typer.Exit(ExitCode.FAILED)


class _AppliedPolicy(NamedTuple):
    files: PolicyFiles
    mode: PermissionMode


def _load_policy(
    managed: Path | None, user: Path | None, project: Path | None, session: Path | None, workspace: Path = Path()
) -> _AppliedPolicy:
    """Load the named policy files; without any, those and the mode that `interlock run` has in this directory."""
    folder = os.path.realpath(workspace)
    if any((managed, user, project, session)):
        files = load_named_policy(managed, user, project, session, os.path.abspath(workspace))
        return _AppliedPolicy(files, PermissionMode.DEFAULT)
    user_paths = find_user_paths()
    trusted = resolve_project(Path(folder), user_paths, ask=False)
    settings = load_settings(user_paths, trusted, os.environ, {}).settings
    files = require_valid(load_policy(settings, user_paths, trusted, folder))
    paths = [path for path in files.own_paths if os.path.exists(path)]
    echo(f"policy files of runs in {folder}: {', '.join(paths) or 'none'}", error=True)
    return _AppliedPolicy(files, settings.mode)


def _parse_arguments(tool: str, text: str) -> JsonObject:
    family = TOOL_DEFAULTS.get(tool)
    try:
        value = json.parse(text)
        if isinstance(value, dict):
            return cast(JsonObject, value)
    except json.InvalidJsonError as error:
        if family is None:
            raise typer.BadParameter(
                f'ARGS is not JSON: {error}. Pass an object, such as \'{{"path": "a"}}\''
            ) from None
    if family is None:
        raise typer.BadParameter('ARGS must be a JSON object, such as \'{"path": "a"}\'')
    return {next(iter(family.resources)): text}


@app.command("backtest", epilog=POLICY_EXIT_CODES)
def backtest_policy(  # noqa: PLR0913 - one for each option
    *,
    log: LogsOption = None,
    file: Annotated[Path | None, argument("[FILE]", "A policy file; the same as --user.")] = None,
    managed: ManagedOption = None,
    user: UserOption = None,
    project: ProjectOption = None,
    session: SessionOption = None,
    fail_on_flip: Annotated[bool, typer.Option("--fail-on-flip", help="Exit with 1 if any decision changes.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Try a policy on recorded runs.

    Which decisions would be others, and which rules never fire. Without a named file: the policy of `interlock run`
    here. Nothing is executed.
    """
    policy = _load_policy(managed, choose_user_file(file, user), project, session).files
    recordings = _load_recordings(log)
    events = recordings.events
    result = backtest(policy, read_recorded_calls(events), read_recorded_requests(events))
    if as_json:
        echo_json({**msgspec.structs.asdict(result), "runs": recordings.runs, "left_out": recordings.left_out})
    else:
        echo_backtest(result)
    if result.flips and fail_on_flip:
        raise typer.Exit(ExitCode.FAILED)


@app.command("suggest", epilog=POLICY_EXIT_CODES)
def suggest_rules(
    log: LogsOption = None,
    min_count: Annotated[int, typer.Option(min=1, help="Minimum number of approvals for a suggestion.")] = 3,
    as_json: JsonOption = False,
) -> None:
    """Suggest rules for what people keep approving.

    The narrowest ones, as entries for the `rules` of a policy file.
    """
    recordings = _load_recordings(log)
    found = find_suggestions(read_recorded_calls(recordings.events), min_count)
    if as_json:
        echo_json({"suggestions": found, "runs": recordings.runs, "left_out": recordings.left_out})
        return
    echo_suggestions(found)
    if not found:
        echo(f"No suggestions: nothing that one narrow rule could cover was approved {min_count} times.", error=True)


def _load_recordings(paths: Sequence[Path] | None) -> Recordings:
    recordings = read_recordings([str(path) for path in paths or [find_default_log()]])
    for reason in recordings.left_out:
        echo(f"skipped, because it was modified: {reason}", error=True)
    return recordings


@app.command("import", epilog=POLICY_EXIT_CODES)
def import_policy(
    source: Annotated[Literal["claude", "codex", "gemini"], typer.Argument(help="Program that the file belongs to.")],
    file: Annotated[Path, argument("FILE", "File to import.")],
    out: Annotated[Path | None, typer.Option(help="New file to write the policy to. Default: standard output.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Make a policy from the file of another tool.

    What could not be said exactly is noted on stderr.
    """
    try:
        imported = _IMPORTERS[source](read_policy_file(str(file)).decode())
    except UnicodeDecodeError:
        raise ConfigurationError(f"{file} is not UTF-8 text.") from None
    text = to_yaml(imported.document)
    read_layer(f"{file} (imported)", "user", text.encode())
    if as_json:
        echo_json({"policy": imported.document, "notes": imported.notes})
    elif out is None:
        print(text, end="")
    for note in imported.notes:
        echo(f"note: {note}", error=True)
    if out is not None:
        _write_policy(out, text)
        echo(f"wrote {out}: {len(imported.document['rules'])} rules", error=True)


def _write_policy(path: Path, text: str) -> None:
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigurationError(f"{path} already exists. Pass the name of a new file.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigurationError(f"{path} cannot be written: {reason}.") from None


@app.command(epilog=POLICY_EXIT_CODES)
def schema(as_json: JsonOption = False) -> None:
    """Print the JSON Schema of policy files."""
    echo_json(json_schema())


@app.command("rules", epilog=POLICY_EXIT_CODES)
def list_rules(
    *,
    managed: ManagedOption = None,
    user: UserOption = None,
    project: ProjectOption = None,
    session: SessionOption = None,
    as_json: JsonOption = False,
) -> None:
    """List rules: layer, id, decision, what about. Without a named file: those of `interlock run` here."""
    files = _load_policy(managed, user, project, session).files
    rules, egress = files.rules, files.egress
    layers: Mapping[str, str] = {words: layer for layer, words in LAYER_LABELS.items()}
    if not as_json:
        echo_rules(rules, egress, files.budgets)
        return
    fields = [(layers[rule.layer], rule.id, rule.verdict, describe_rule(rule)) for rule in rules]
    fields += [(layers[rule.layer], rule.id, rule.verdict, describe_egress_rule(rule)) for rule in egress]
    fields += [(layers[rule.layer], rule.id, rule.then, rule.describe()) for rule in files.budgets]
    echo_json([dict(zip(("layer", "id", "decision", "about"), each, strict=True)) for each in fields])


@app.command("budgets", epilog=POLICY_EXIT_CODES)
def show_budgets(  # noqa: PLR0913 - one for each option
    *,
    log: LogOption = None,
    managed: ManagedOption = None,
    user: UserOption = None,
    project: ProjectOption = None,
    session: SessionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what was used of each budget in its current window.

    Without a named file: the budgets of `interlock run` here. Only agents, requesters and tools that used something are
    listed.
    """
    budgets = _load_policy(managed, user, project, session).files.budgets
    now = time_ns()
    used = run_with_log(log, lambda opened: read_usage(opened, budgets, now)) if budgets and has_log(log) else []
    unused = [rule.id for rule in budgets if rule.id not in {each.id for each in used}]
    if as_json:
        echo_json({"budgets": used, "unused": unused})
        return
    echo_budgets(used)
    for rule in budgets:
        if rule.id in unused:
            echo(f"{rule.id}: nothing used; {rule.describe()}")
    if not budgets:
        echo("The policy has no budgets.", error=True)


@app.command(epilog=POLICY_EXIT_CODES)
def revoke(
    rule_id: Annotated[str, argument("ID", "Id of a saved rule.")],
    user: Annotated[Path | None, option("User policy file. Default: that of `interlock run`.", metavar="FILE")] = None,
    as_json: JsonOption = False,
) -> None:
    """Take out a rule that was kept.

    Kept rules are those that a person approved for good when they were asked.
    """
    user = user or Path(_load_policy(None, None, None, None).files.kept_in)
    revoked = PolicyFiles(user=user).revoke(rule_id)
    if not revoked:
        raise ConfigurationError(
            f"{user} has no saved rule {rule_id}. `interlock policy rules --user {user}` lists all; rules that people "
            "wrote are removed by hand."
        )
    echo_result(as_json, {"revoked": rule_id, "path": str(user)}, f"{user}: removed {rule_id}")
