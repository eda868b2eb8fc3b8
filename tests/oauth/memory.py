"""Tokens and flows that are gone with the process."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from interlock.domain.tool import ConsentBinding
from interlock.oauth.tokens import FlowMiss, SealedFlow, SealedGrant


class MemoryTokens:
    def __init__(self) -> None:
        self._grants: dict[ConsentBinding, SealedGrant] = {}
        self._flows: dict[str, SealedFlow] = {}
        self._used: dict[str, SealedFlow] = {}

    async def load(self, binding: ConsentBinding) -> SealedGrant | None:
        return self._grants.get(binding)

    async def save(self, grant: SealedGrant) -> None:
        self._grants[grant.binding] = grant

    async def forget(self, binding: ConsentBinding) -> bool:
        return self._grants.pop(binding, None) is not None

    async def list_grants(self, user: str) -> tuple[SealedGrant, ...]:
        theirs = [kept for kept in self._grants.values() if kept.binding.user == user]
        return tuple(sorted(theirs, key=lambda kept: (kept.binding.agent, kept.binding.tool, kept.since)))

    @asynccontextmanager
    async def lock(self, binding: ConsentBinding) -> AsyncGenerator[None]:
        """Nothing: there is one process."""
        yield

    async def put_flow(self, flow: SealedFlow, now: int, at_most: int) -> None:
        for flows in (self._flows, self._used):
            for over in [key for key, kept in flows.items() if kept.expires_at <= now]:
                del flows[over]
        self._flows[flow.state_hash] = flow
        theirs = [key for key, kept in self._flows.items() if kept.owner == flow.owner]
        for oldest in theirs[:-at_most]:
            del self._flows[oldest]

    async def take_flow(self, state_hash: str, now: int) -> SealedFlow | FlowMiss:
        if flow := self._flows.pop(state_hash, None):
            self._used[state_hash] = flow
            return flow if flow.expires_at > now else "unknown"
        used = self._used.get(state_hash)
        return "used" if used and used.expires_at > now else "unknown"
