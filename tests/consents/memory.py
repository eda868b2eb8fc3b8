"""Tokens and flows that are gone with the process."""

from interlock.consents.tokens import KeptFlow, KeptGrant, NoFlow


class MemoryTokens:
    def __init__(self) -> None:
        self._grants: dict[tuple[str, str], KeptGrant] = {}
        self._flows: dict[str, KeptFlow] = {}
        self._used: dict[str, KeptFlow] = {}

    async def load(self, user: str, tool: str) -> KeptGrant | None:
        return self._grants.get((user, tool))

    async def save(self, grant: KeptGrant) -> None:
        self._grants[grant.user, grant.tool] = grant

    async def forget(self, user: str, tool: str) -> bool:
        return self._grants.pop((user, tool), None) is not None

    async def given(self, user: str) -> tuple[KeptGrant, ...]:
        return tuple(sorted((kept for kept in self._grants.values() if kept.user == user), key=lambda kept: kept.tool))

    async def put_flow(self, flow: KeptFlow, now: int, at_most: int) -> None:
        for flows in (self._flows, self._used):
            for over in [key for key, kept in flows.items() if kept.expires_at <= now]:
                del flows[over]
        self._flows[flow.state_hash] = flow
        theirs = [key for key, kept in self._flows.items() if kept.owner == flow.owner]
        for oldest in theirs[:-at_most]:
            del self._flows[oldest]

    async def take_flow(self, state_hash: str, now: int) -> KeptFlow | NoFlow:
        if flow := self._flows.pop(state_hash, None):
            self._used[state_hash] = flow
            return flow if flow.expires_at > now else "unknown"
        used = self._used.get(state_hash)
        return "used" if used and used.expires_at > now else "unknown"
