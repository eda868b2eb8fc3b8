"""The conformance suite with every fallback, and the settings that our own providers share."""

from typing import Any, get_args

import pytest

from interlock.domain.errors import InterlockError
from interlock.interaction.interface import Fallback, InteractionProvider
from interlock.testing.conformance.interaction import InteractionProviderConformance, make_question


class ProviderSuite(InteractionProviderConformance):
    def make(self, **settings: Any) -> InteractionProvider:
        raise NotImplementedError

    @pytest.fixture(params=get_args(Fallback))
    def provider(self, request: pytest.FixtureRequest) -> InteractionProvider:
        return self.make(approval_fallback=request.param)

    def test_default_is_five_minutes_then_deny(self) -> None:
        provider = self.make()

        assert provider.approval_timeout_s == 300.0
        assert provider.approval_fallback == "deny"

    def test_timeout_and_fallback_are_settings(self) -> None:
        provider = self.make(approval_timeout_s=1.5, approval_fallback="wait")

        assert (provider.approval_timeout_s, provider.approval_fallback) == (1.5, "wait")
        assert self.make(approval_timeout_s=None).approval_timeout_s is None

    def test_unknown_fallback_is_refused(self) -> None:
        with pytest.raises(InterlockError, match="deny, approve or wait, not 'perhaps'"):
            self.make(approval_fallback="perhaps")

    async def test_same_question_has_the_same_answer(self, provider: InteractionProvider) -> None:
        assert await provider.ask(make_question()) == await provider.ask(make_question())
