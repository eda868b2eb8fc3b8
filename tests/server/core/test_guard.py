"""What somebody may not see is not there for them; what they see and may not do is refused, and written down."""

from pathlib import Path

import pytest

from interlock.history.fold import load_run
from interlock.server.core.errors import ForbiddenError, NotFoundError
from interlock.server.core.identity.permissions import Operation
from interlock.server.core.identity.principal import Principal, Role

from .serving import ADA, BOB, World, asked, create, serving

PERSON = Principal(name="user:pat", kind="person")
OTHERS = Principal(name="user:carl", kind="person", roles=frozenset({Role.OPERATOR}), agents=frozenset({"two"}))
AUDITOR = Principal(name="user:eve", kind="person", roles=frozenset({Role.AUDITOR}))


async def test_a_run_that_is_not_theirs_is_as_unknown_as_one_that_does_not_exist(tmp_path: Path) -> None:
    async with serving(tmp_path, World().one()) as service:
        run_id = await create(service, "one", ADA)
        said: list[str] = []
        for who in (PERSON, OTHERS):
            for name in (run_id, "run_" + "0" * 32):
                with pytest.raises(NotFoundError) as unknown:
                    await service.guard.get_run(who, name)
                said.append(str(unknown.value).replace(name, "it"))
        journal = await service.audit_log.read()

    assert len(set(said)) == 1
    assert journal == ()


async def test_what_they_see_and_may_not_do_is_refused_with_their_roles_and_journaled(tmp_path: Path) -> None:
    async with serving(tmp_path, World().one()) as service:
        run_id = await create(service, "one", ADA)
        assert (await service.guard.get_run(AUDITOR, run_id)).run_id == run_id
        with pytest.raises(ForbiddenError) as refused:
            await service.guard.get_run(AUDITOR, run_id, Operation.CANCEL_RUN)
        (entry,) = await service.audit_log.read()

    assert "user:eve has the role auditor" in str(refused.value)
    assert "Nothing was done" in str(refused.value)
    assert (entry.by, entry.action, entry.target, entry.outcome) == ("user:eve", "runs.cancel", run_id, "refused")


async def test_a_person_without_a_role_sees_the_questions_of_their_own_run_and_decides_none(tmp_path: Path) -> None:
    own = Principal(name="user:bob", kind="person")
    async with serving(tmp_path, World().one()) as service:
        (row,) = await asked(service, await create(service, "one", BOB))
        seen, run = await service.guard.get_action(own, row.action_id)
        with pytest.raises(ForbiddenError):
            await service.guard.get_action(own, row.action_id, Operation.DECIDE)
        with pytest.raises(NotFoundError):
            await service.guard.get_action(PERSON, row.action_id)

    assert (seen.action_id, run.requester) == (row.action_id, "user:bob")


async def test_a_second_person_is_needed_where_the_setting_says_so_and_it_is_journaled(tmp_path: Path) -> None:
    async with serving(tmp_path, World().one()) as service:
        (row,) = await asked(service, await create(service, "one", ADA))
        ledger = (await load_run(service.log, row.run_id)).ledger
        question = ledger.actions[row.action_id].question
        await service.guard.require_second_person(ADA, question, ledger)  # `write` is no high risk
        service.guard.four_eyes = "all"
        with pytest.raises(ForbiddenError) as refused:
            await service.guard.require_second_person(ADA, question, ledger)
        await service.guard.require_second_person(BOB, question, ledger)
        (entry,) = await service.audit_log.read()

    assert refused.value.details == {"requester": "user:ada", "created_by": "user:ada"}
    assert (entry.by, entry.action, entry.outcome) == ("user:ada", "decision.four_eyes", "refused")
