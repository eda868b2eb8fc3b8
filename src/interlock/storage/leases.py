"""What is said to those who may not append or claim. Nothing was written for them."""

from ..domain.errors import LogFencedError, RunClaimedError
from .event_log import Lease
from .process import ProcessIdentity

#: What is held by a claim that nobody has, and what is shown by somebody who has none. Tokens start at 1.
NO_TOKEN = 0


def lease_token(run_id: str, lease: Lease | None) -> int:
    """What the claim is worth for this run."""
    if lease is None:
        return NO_TOKEN
    if lease.run_id != run_id:
        raise LogFencedError(f"a claim of {lease.run_id} is none of {run_id}. Nothing was written.")
    return lease.token


def fenced_error(run_id: str, token: int, holder: ProcessIdentity | None) -> LogFencedError:
    """For an append with `token` that is not the one in force."""
    if holder is None:
        problem = f"the claim {token} of {run_id} was given back or lost"
        advice = "Claim the run again to move it on."
    elif token == NO_TOKEN:
        problem = f"{run_id} is claimed by {holder}, and only its claim can append"
        advice = "Claim the run to move it on."
    else:
        problem = f"{run_id} was taken over by {holder}"
        advice = "Stop here; the log has what the other one does."
    return LogFencedError(f"{problem}. Nothing was written, and nothing may be started. {advice}")


def claimed_error(run_id: str, holder: ProcessIdentity, here: ProcessIdentity) -> RunClaimedError:
    if holder == here:
        return RunClaimedError(f"{run_id} is moved on by this very process ({holder}) already. Nothing was written.")
    seen = "is alive" if holder.host == here.host else "is on another host, where it cannot be seen whether it is alive"
    return RunClaimedError(
        f"{run_id} is moved on by {holder}, which {seen}. Nothing was written. From here you can answer its questions,"
        " watch it, or take it over by force."
    )
