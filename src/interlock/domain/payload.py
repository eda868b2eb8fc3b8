"""What an approval is bound to: one document with everything that was decided on, and the hash of its canonical form.

The document is JSON, its canonical form is RFC 8785, the hash is SHA-256. The question contains the document, so the
hash can be checked with any tool. What runs after an approval is read back from these bytes.
"""

from hashlib import sha256
from typing import TYPE_CHECKING, Any, cast

import msgspec

from .. import lazy_module
from . import json
from .tool import CallContext, JsonObject, ToolDefinition

if TYPE_CHECKING:
    import rfc8785
else:
    rfc8785 = lazy_module("rfc8785")

PAYLOAD_SCHEMA = "interlock/invocation/v1"
_MAX_EXACT = 2**53 - 1
#: Between these, every encoder writes a fraction without an exponent.
_MIN_DECIMAL, _MAX_DECIMAL = 1e-3, 1e15


class FileOperand(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A file system object that the call names, as it was when the question was asked."""

    path: str
    #: Digest of its content. Empty when there was no such file, or when it could not be bound.
    sha256: str = ""
    #: Why it could not be bound: a folder, a device, a huge file.
    unbound: str = ""

    @property
    def state(self) -> str:
        """Content hash of the file, or why there is none."""
        return (
            f"sha256:{self.sha256}"
            if self.sha256
            else f"cannot be bound: {self.unbound}"
            if self.unbound
            else "missing"
        )


class ExecutionEnvironment(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Where a call would run, and the files it names there."""

    cwd: str = ""
    #: Variables that are set or changed for it.
    environment: dict[str, str] = {}
    #: The sandbox and its profile.
    sandbox: str = "none"
    files: tuple[FileOperand, ...] = ()
    #: It may run code of the workspace that it does not name: an approval is not bound to that.
    unnamed_code: bool = False

    @property
    def can_change(self) -> bool:
        """Return True when another content of one of the files would make this a different call."""
        return any(not file.unbound for file in self.files)

    @property
    def existing_files(self) -> tuple[FileOperand, ...]:
        """Files that exist and whose content an approval is bound to. Other names may be no files at all."""
        return tuple(file for file in self.files if file.sha256 and not file.unbound)

    @property
    def unbound_files(self) -> tuple[FileOperand, ...]:
        """Files that the call names and that an approval cannot be bound to."""
        return tuple(file for file in self.files if file.unbound)


class ApprovalBinding(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Everything but the arguments that an approval is bound to."""

    tool_origin: str = "local"
    tool_source: str = ""
    tool_version: str = ""
    tool_definition: str = ""
    policy: str = ""
    mode: str = "default"
    requester: str = ""
    surroundings: ExecutionEnvironment = ExecutionEnvironment()
    #: The digest of the effect that the call had in its trial. Empty: it was not tried.
    trial: str = ""


class Payload(msgspec.Struct, frozen=True, gc=False):
    """One call of one run, as it would run. `expires_at` is when its approval expires; 0 is never."""

    run_id: str
    call_id: str
    tool_name: str
    arguments: JsonObject
    bound: ApprovalBinding = ApprovalBinding()
    expires_at: int = 0


class BindingChange(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A part of the approval binding that differs now."""

    what: str
    was: str
    now: str


def definition_digest(tool: ToolDefinition) -> str:
    """Return the digest of everything the tool declares as data, whatever version it states."""
    declared = [
        tool.spec,
        tool.version,
        sorted(tool.risk),
        tool.read_only,
        tool.idempotent,
        tool.concurrency,
        tool.isolation,
        tool.timeout_seconds,
        tool.max_output_chars,
        tool.origin,
        tool.source,
        tool.resources,
        tool.consent,
        tool.timeout_behavior,
        tool.raise_on_error,
        tool.propagate_errors,
        *([{"capability": tool.capability}] if tool.capability else ()),
        *([{"title": tool.title}] if tool.title else ()),
        *([{"key_facts": tool.key_facts}] if tool.key_facts else ()),
        *([{"source_name": tool.source_name}] if tool.source_name else ()),
        *([{"quarantine": tool.quarantine}] if tool.quarantine else ()),
        *(["contained"] if tool.contained else ()),
        *(["child run"] if tool.resumes else ()),
        *(["handoff"] if tool.hands_over else ()),
        *(["trial"] if tool.trial is not None else ()),
        *(["egress"] if tool.egress else ()),
    ]
    if tool.effect is not None:
        declared += [tool.effect if isinstance(tool.effect, str) else "function", tool.repeat]
    return "sha256:" + sha256(json.encode_sorted(declared)).hexdigest()


def build_binding(
    tool: ToolDefinition, policy: str, situation: CallContext, surroundings: ExecutionEnvironment
) -> ApprovalBinding:
    """Build everything besides the arguments that an approval is bound to."""
    return ApprovalBinding(
        tool_origin=tool.origin,
        tool_source=tool.source,
        tool_version=tool.version,
        tool_definition=definition_digest(tool),
        policy=policy,
        mode=str(situation.mode),
        requester=situation.requester,
        surroundings=surroundings,
    )


def canonical_payload(payload: Payload) -> bytes:
    """Return the bytes that a person approves. Raise `InvalidJsonError` when two parsers could read the arguments
    differently.
    """
    bound, surroundings = payload.bound, payload.bound.surroundings
    return _canonicalize(
        {
            "schema": PAYLOAD_SCHEMA,
            "tenant": "",
            "run": payload.run_id,
            "call": payload.call_id,
            "tool": {
                "origin": bound.tool_origin,
                "source": bound.tool_source,
                "name": payload.tool_name,
                "version": bound.tool_version,
                "definition": bound.tool_definition,
            },
            "arguments": payload.arguments,
            "cwd": surroundings.cwd,
            "environment": surroundings.environment,
            "sandbox": surroundings.sandbox,
            "files": [_file_entry(file) for file in surroundings.files],
            **({"unnamed_code": True} if surroundings.unnamed_code else {}),
            **({"trial": bound.trial} if bound.trial else {}),
            "policy": bound.policy,
            "mode": bound.mode,
            "requester": bound.requester,
            "expires": str(payload.expires_at) if payload.expires_at else "",
        }
    )


def hash_payload(canonical: bytes) -> str:
    """Return the hash of a canonical payload, with its schema mixed in."""
    return "sha256:" + sha256(PAYLOAD_SCHEMA.encode() + b"\n" + canonical).hexdigest()


def hash_answer(payload_hash: str, arguments: JsonObject | None, value: Any) -> str:
    """Return the hash of what a person wrote in an answer, so that a later change is detected."""
    if arguments is None and value is None:
        return ""
    return hash_payload(_canonicalize(["answer", payload_hash, arguments, value]))


def read_canonical_arguments(canonical: bytes) -> JsonObject:
    """Return the arguments from the canonical bytes: the ones that run."""
    arguments: JsonObject = json.parse(canonical)["arguments"]
    return arguments


def compute_grant_key(tool_name: str, arguments: JsonObject, bound: ApprovalBinding, rule_ids: tuple[str, ...]) -> str:
    """Return the key of an approval for the whole run: the same call, in the same environment, asked by the same
    rules.
    """
    surroundings, tool = bound.surroundings, [bound.tool_origin, bound.tool_source, tool_name, bound.tool_definition]
    files = [_file_entry(file) for file in surroundings.files]
    places = [surroundings.cwd, surroundings.environment, surroundings.sandbox, files]
    return hash_payload(_canonicalize(["grant", tool, arguments, places, bound.requester, list(rule_ids)]))


def diff_bindings(was: ApprovalBinding, now: ApprovalBinding) -> tuple[BindingChange, ...]:
    """Return the differences, as text for the person who is asked again."""
    before, after = _describe_binding(was), _describe_binding(now)
    names = [*before, *(name for name in after if name not in before)]
    absent = "not there"
    return tuple(
        BindingChange(name, before.get(name, absent), after.get(name, absent))
        for name in names
        if before.get(name, absent) != after.get(name, absent)
    )


def _describe_binding(bound: ApprovalBinding) -> dict[str, str]:
    surroundings = bound.surroundings
    return {
        "tool origin": f"{bound.tool_origin} {bound.tool_source}".strip(),
        "tool version": bound.tool_version,
        "tool definition": bound.tool_definition,
        "policy": bound.policy,
        "permission mode": bound.mode,
        "requester": bound.requester,
        "working directory": surroundings.cwd,
        "sandbox": surroundings.sandbox,
        **({"tried effect": bound.trial} if bound.trial else {}),
        **{f"variable {name}": value for name, value in surroundings.environment.items()},
        **{f"file {file.path}": file.state for file in surroundings.files},
    }


def _file_entry(file: FileOperand) -> JsonObject:
    return {"path": file.path, "sha256": file.sha256, "unbound": file.unbound}


def _canonicalize(document: Any) -> bytes:
    try:
        return json.encode_sorted(document) if _is_simple(document) else rfc8785.dumps(document)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError) as error:
        raise json.InvalidJsonError(f"it has no canonical form: {error}") from None


def _is_simple(value: Any) -> bool:
    """Return True if its sorted JSON and its canonical form are the same bytes.

    Very large and very small numbers and `2.0` are written in another way, and other scripts are sorted in another.
    """
    found: list[Any] = [value]
    for each in found:  # it grows meanwhile
        if each is None or type(each) is str or type(each) is bool:
            continue
        if type(each) is dict:
            for name in cast(dict[Any, Any], each):
                if type(name) is not str or not name.isascii():
                    return False
            found += each.values()
        elif type(each) is list:
            found += each
        elif type(each) is int:
            if not -_MAX_EXACT <= each <= _MAX_EXACT:
                return False
        elif type(each) is not float or each.is_integer() or not _MIN_DECIMAL <= abs(each) < _MAX_DECIMAL:
            return False
    return True
