"""What is said to those who may not append or claim. Nothing was written for them."""

from ..domain.errors import LogFencedError, RunClaimedError
from .event_log import Claim
from .process import Process

#: What is held by a claim that nobody has, and what is shown by somebody who has none. Tokens start at 1.
NO_TOKEN = 0


def token_for(run_id: str, claim: Claim | None) -> int:
    """What the claim is worth for this run."""
    if claim is None:
        return NO_TOKEN
    if claim.run_id != run_id:
        raise LogFencedError(f"a claim of {claim.run_id} is none of {run_id}. Nothing was written.")
    return claim.token


def fenced(run_id: str, token: int, holder: Process | None) -> LogFencedError:
    """For an append with `token` that is not the one in force."""
    if holder is None:
        said = f"the claim {token} of {run_id} was given back or lost"
        advice = "Claim the run again to move it on."
    elif token == NO_TOKEN:
        said = f"{run_id} is claimed by {holder}, and only its claim can append"
        advice = "Claim the run to move it on."
    else:
        said = f"{run_id} was taken over by {holder}"
        advice = "Stop here; the log has what the other one does."
    return LogFencedError(f"{said}. Nothing was written, and nothing may be started. {advice}")


def claimed(run_id: str, holder: Process, here: Process) -> RunClaimedError:
    if holder == here:
        return RunClaimedError(f"{run_id} is moved on by this very process ({holder}) already. Nothing was written.")
    seen = "is alive" if holder.host == here.host else "is on another host, where it cannot be seen whether it is alive"
    return RunClaimedError(
        f"{run_id} is moved on by {holder}, which {seen}. Nothing was written. From here you can answer its questions,"
        " watch it, or take it over by force."
    )
