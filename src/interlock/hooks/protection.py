"""Rules that keep coding agents from their own hooks, from Interlock's files and from credentials.

An agent that could change its settings could remove its hooks. Where an agent has settings of an administrator, those
are the real protection: these rules see paths and commands, and not what a program does that a command starts.
"""

from collections.abc import Iterable
from pathlib import Path

from ..policy.engine.rule import Rule
from ..sandbox.workspace.protected_names import SECRET_FILES, SECRET_FOLDERS, SECRET_PATTERNS
from . import thin

_REASON = "An agent must not change the hooks that govern it."
_OWN_REASON = "An agent must not use Interlock's own files: it could approve its own calls."
_CREDENTIALS_REASON = "It is kept for credentials, which tools neither read nor write."
_CREDENTIALS_ADVICE = "Continue without it."
#: In files such as `.env.example` there is no secret, and a rule about names has no exceptions.
_ENV_PATTERNS = (".env.local", ".env.*.local", ".env.production", ".env.development", ".env.staging", ".env.test")
_ADVICE = "Do not try this in another way. A person changes these files."
#: Settings with hooks, in a home folder or a project.
_HOOK_FILES = (
    ".claude/settings.json",
    ".claude/settings.local.json",
    ".codex/hooks.json",
    ".codex/config.toml",
    ".codex/requirements.toml",
    ".codex/rules/interlock.rules",
    ".gemini/settings.json",
    ".gemini/policies/interlock.toml",
    ".cursor/hooks.json",
    ".opencode/plugin/interlock.js",
    ".opencode/plugins/interlock.js",
    ".config/opencode/plugin/interlock.js",
    ".config/opencode/plugins/interlock.js",
)


def protection_rules(own_paths: Iterable[str], hook_files: Iterable[str] = ()) -> list[Rule]:
    """Return the rules that hold for every agent, whatever its policy allows.

    Args:
        own_paths: Interlock's configuration and state: no access at all.
        hook_files: Files with hooks in other places than usual: no writing.
    """
    home = str(Path.home())
    written = [f"**/{name}" for name in _HOOK_FILES] + [f"{home}/{name}" for name in _HOOK_FILES]
    own = [path for root in own_paths for path in (root, f"{root}/**")]
    rules = [
        Rule(
            id="interlock:credentials",
            verdict="deny",
            path=_list_credentials(),
            layer="path boundary",
            reason=_CREDENTIALS_REASON,
            advice=_CREDENTIALS_ADVICE,
        ),
        Rule(
            id="interlock:hook-files",
            verdict="deny",
            path=[*written, *hook_files, "**/.interlock/**", thin.__file__],
            access="write",
            layer="hooks",
            reason=_REASON,
            advice=_ADVICE,
        ),
    ]
    if own:
        rules.append(
            Rule(id="interlock:own-files", verdict="deny", path=own, layer="hooks", reason=_OWN_REASON, advice=_ADVICE)
        )
    return rules


def _list_credentials() -> list[str]:
    """Return the names that our own file tools refuse, as patterns of paths, in the workspace and elsewhere."""
    names = ["/".join(path) for path in sorted(SECRET_FOLDERS | SECRET_FILES)]
    nested = [f"{start}**/{name}" for name in names if "/" in name for start in ("", "/")]
    patterns = [pattern for pattern in SECRET_PATTERNS if pattern != ".env.*"]
    return [*(name for name in names if "/" not in name), *nested, *patterns, *_ENV_PATTERNS]
