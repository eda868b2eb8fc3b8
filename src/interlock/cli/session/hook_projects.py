"""The projects that coding agents work in: for each, its policy and what decides about its calls."""

import os
from collections.abc import Mapping
from pathlib import Path

from ...domain.budget import BudgetRule
from ...domain.decision import Decision, Verdict
from ...domain.errors import ConfigurationError
from ...gate.gate import Gate
from ...hooks.contract import AgentContract
from ...hooks.governor import ExternalExecutor, Governor
from ...hooks.protection import protection_rules
from ...hooks.thin import MAX_BODY_BYTES
from ...pipeline.parts import Limits
from ...policy.files.policy_files import PolicyFiles
from ...policy.interface import PolicyEvent
from ...storage.artifacts import ArtifactStore
from ...storage.event_log import EventLog
from ..config.policy_files import load_policy, require_valid
from ..config.project_settings import load_project
from ..config.project_trust import find_project
from ..config.user_paths import MANAGED_POLICY, UserPaths, login_name

_MAX_RUNNING = 10_000
_Stamp = tuple[tuple[str, int, int], ...]


class ProjectPolicy:
    """The policy of a project, loaded again when one of its files changes. What cannot be loaded denies everything."""

    def __init__(self, workspace: str, user_paths: UserPaths, environ: Mapping[str, str]) -> None:
        self._workspace = workspace
        self._user_paths = user_paths
        self._environ = environ
        self._files: PolicyFiles | None = None
        self._problem = ""
        self._stamp: _Stamp | None = None

    def evaluate(self, event: PolicyEvent) -> Decision:
        """Decide about a call with the rules that are in the files now."""
        files = self._load_changed()
        if files is None:
            reason = f"The policy cannot be loaded, so nothing may run. {self._problem}"
            return Decision(
                verdict=Verdict.DENY, reason=reason, rule_ids=("interlock:policy-error",), layer="policy error"
            )
        return files.evaluate(event)

    @property
    def own_paths(self) -> tuple[str, ...]:
        """The paths of the files."""
        return () if self._files is None else self._files.own_paths

    def keep(self, rule: str) -> str:
        """Save an allow rule in the user's file."""
        return self._require().keep(rule)

    def preview_keep(self, rule: str) -> str:
        """Return the digest that the policy would have with a rule."""
        return self._require().preview_keep(rule)

    @property
    def kept_in(self) -> str:
        """The file that rules are saved in."""
        files = self._load_changed()
        return "" if files is None else files.kept_in

    @property
    def budgets(self) -> tuple[BudgetRule, ...]:
        """The budgets of the files, as the last decision found them."""
        return () if self._files is None else self._files.budgets

    @property
    def digest(self) -> str:
        """Digest of the rules: approvals are bound to it, also before the first decision of this process."""
        files = self._load_changed()
        return "" if files is None else files.digest

    def _require(self) -> PolicyFiles:
        files = self._load_changed()
        if files is None:
            raise ConfigurationError(self._problem)
        return files

    def _load_changed(self) -> PolicyFiles | None:
        stamp = self._read_stamp()
        if stamp != self._stamp:
            try:
                loaded, project = load_project(self._workspace, self._user_paths, self._environ)
                self._files = require_valid(load_policy(loaded.settings, self._user_paths, project, self._workspace))
                self._problem = ""
            except ConfigurationError as error:
                self._files, self._problem = None, str(error)
            self._stamp = self._read_stamp()
        return self._files

    def _read_stamp(self) -> _Stamp:
        """Return what shows that a file changed, without reading it."""
        places = [*self._user_paths.own_paths, str(MANAGED_POLICY), *self.own_paths]
        if self._user_paths.config is not None:
            places += [str(self._user_paths.settings_file), str(self._user_paths.policy_file)]
        if self._user_paths.state is not None:
            places.append(str(self._user_paths.trust_file))
        folder = os.path.join(self._workspace, ".interlock")
        places += [folder, *(os.path.join(folder, name) for name in ("config.toml", "policy.yaml"))]
        return tuple(_stat(place) for place in dict.fromkeys(places))


def _stat(path: str) -> tuple[str, int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return path, 0, 0
    if os.path.isdir(path):  # logs come and go there
        return path, found.st_ino, 0
    return path, found.st_mtime_ns, found.st_size


class HookProjects:
    """Finds what decides about an agent in a folder. All share one log."""

    def __init__(
        self, user_paths: UserPaths, log: EventLog, artifacts: ArtifactStore, environ: Mapping[str, str] = os.environ
    ) -> None:
        self._user_paths = user_paths
        self._log = log
        self._artifacts = artifacts
        self._environ = environ
        self._governors: dict[tuple[str, str], Governor] = {}
        self._gates: list[Gate] = []

    def find(self, contract: AgentContract, cwd: str) -> Governor:
        """Return what decides about an agent that works in this folder."""
        if not os.path.isabs(cwd) or not os.path.isdir(cwd):
            raise ConfigurationError(f"The agent says that it works in {cwd[:200]!r}, which is not a folder.")
        workspace = str(find_project(Path(cwd), self._user_paths))
        key = (contract.name, workspace)
        if key not in self._governors:
            loaded, _ = load_project(workspace, self._user_paths, self._environ)
            gate = Gate(
                policy=ProjectPolicy(workspace, self._user_paths, self._environ),
                mode=loaded.settings.mode,
                requester=login_name(),
                workspace=workspace,
                limits=Limits(max_argument_bytes=2 * MAX_BODY_BYTES),
                log=self._log,
                artifacts=self._artifacts,
                sandbox=ExternalExecutor(contract.client),
                max_concurrency=_MAX_RUNNING,
            )
            self._gates.append(gate)
            protected = protection_rules(self._user_paths.own_paths)
            self._governors[key] = Governor(contract, gate, login_name(), protected)
        return self._governors[key]

    async def close(self) -> None:
        """Release all runs."""
        for gate in self._gates:
            await gate.close()
