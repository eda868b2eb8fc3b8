"""Commands without confinement, where the host allows nothing better. Everything they start ends with them.

A profile that cannot be enforced is refused; what cannot be guaranteed is stated in the confinement.
"""

from ...domain.errors import SandboxSetupError
from ..interface import CommandSpec, Confinement, OutputHandler, RunningCommand, SandboxProfile
from .supervised_launch import Restrictions, create_private_folder, run_supervised

_CONFINEMENT = Confinement(
    backend="none",
    capabilities=("kill_tree",),
    degraded=True,
    notes=(
        "Nothing holds commands back: they can read and change all files of the user, also those that are to be "
        "read-only, and reach every host: egress rules do not hold.",
        "What a command starts ends with it, unless it kills its supervisor on purpose.",
        "Temporary files are limited in size one by one, and the number of processes of root only by control groups.",
        "`interlock doctor` says what this host lacks.",
    ),
)


class UnconfinedSandbox:
    """Command executor without confinement."""

    @property
    def confinement(self) -> Confinement:
        """No restrictions at all."""
        return _CONFINEMENT

    async def start(self, command: CommandSpec, on_output: OutputHandler) -> RunningCommand:
        """Start a command with the rights of this process. Refuse profiles that need a sandbox."""
        _check_profile(command.profile)
        with create_private_folder(command.profile.workspace) as private:
            return await run_supervised(command, on_output, private, Restrictions())


def _check_profile(profile: SandboxProfile) -> None:
    """Refuse profiles whose callers rely on confinement: commands without approval, hidden secrets."""
    asked = {"a read-only workspace": not profile.writable, "hidden files": bool(profile.hidden)}
    if missing := [what for what, wanted in asked.items() if wanted]:
        raise SandboxSetupError(
            f"This host has no sandbox, so there cannot be {' or '.join(missing)}. Nothing was executed. "
            "`interlock doctor` says what to do."
        )
