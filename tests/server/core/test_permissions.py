"""Every cell of the table of permissions, written out here a second time, and what no cell may ever allow."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.domain.state.lifecycle import RunState
from interlock.server.core.identity.permissions import (
    PERMISSIONS,
    RELATIONSHIPS,
    Operation,
    RunOwnershipData,
    get_visibility,
    is_allowed,
)
from interlock.server.core.identity.principal import Principal, Role
from interlock.server.core.index.rows import RunRow

#: What a request is about, as somebody sees it who owns the agent `mine`:
#: O a run of an agent they own, M such a run that they made themselves, X a run of another agent,
#: F one of another agent that acts for them, B one of another agent that they made, N no run at all.
ABOUT = "OMXFBN"

#: Whoever owns one agent. `nobody` is a person without roles, `key` a key with the role of an operator.
OWNERS_OF_ONE = """
    operation          agent   key     operator  auditor  admin   nobody
    runs.list          OMXFBN  OMXFBN  OMXFBN    OMXFBN   OMXFBN  OMXFBN
    questions.list     -       OMXFBN  OMXFBN    OMXFBN   OMXFBN  OMXFBN
    statistics.read    -       OMXFBN  OMXFBN    OMXFBN   OMXFBN  OMXFBN
    runs.read          OM      OM      OMFB      OMFB     OMFB    MFB
    questions.read     -       OM      OMFB      OMFB     OMFB    MFB
    runs.create        OM      OM      OM        -        OM      -
    runs.cancel        M       OM      OMFB      MFB      OMFB    MFB
    runs.message       M       M       MFB       MFB      MFB     MFB
    agents.stop        -       OM      OM        -        OM      -
    agents.switch      -       OM      OM        -        OM      -
    agents.switch_all  -       -       -         -        -       -
    triggers.list      -       OMXFBN  OMXFBN    OMXFBN   OMXFBN  -
    triggers.pause     -       OM      OM        -        OM      -
    questions.decide   -       OM      OM        -        OM      -
    questions.answer   -       OM      OM        -        OM      -
    questions.assign   -       OM      OM        -        OM      -
    questions.comment  -       OM      OMFB      OMFB     OMFB    MFB
    runs.undo          -       OM      OM        -        OM      -
    consents.give      -       -       F         F        F       F
    consents.own       -       -       OMXFBN    OMXFBN   OMXFBN  OMXFBN
    policy.read        -       OM      OM        OM       OM      -
    policy.keep        -       OM      OM        -        OM      -
    mcp.list           -       OMXFBN  OMXFBN    OMXFBN   OMXFBN  -
    mcp.read           -       OM      OM        OM       OM      -
    mcp.accept         -       OM      OM        -        OM      -
    audit.export       -       -       -         OM       OM      -
    audit.forward      -       -       -         OM       OM      -
    audit.verify_run   -       OM      OM        OM       OM      -
    audit.verify       -       -       -         -        -       -
    audit.checkpoints  -       -       -         -        -       -
    audit.forwarders   -       -       -         -        -       -
    audit.retry        -       -       -         -        -       -
    audit.journal      -       -       -         -        -       -
    notices.read       -       -       -         -        -       -
    notices.manage     -       -       -         -        -       -
    keys.read          -       -       -         -        -       -
    keys.manage        -       -       -         -        -       -
    accounts.read      -       -       -         -        -       -
    accounts.manage    -       -       -         -        -       -
    identity.own       OMXFBN  OMXFBN  OMXFBN    OMXFBN   OMXFBN  OMXFBN
    accounts.own       -       -       OMXFBN    OMXFBN   OMXFBN  OMXFBN
    published.read     OMXFBN  OMXFBN  OMXFBN    OMXFBN   OMXFBN  OMXFBN
"""

#: The same for whoever owns all agents. A person without roles owns nothing by that.
OWNERS_OF_ALL = """
    operation          agent   key     operator  auditor  admin   nobody
    runs.list          OMXFBN  OMXFBN  OMXFBN    OMXFBN   OMXFBN  OMXFBN
    questions.list     -       OMXFBN  OMXFBN    OMXFBN   OMXFBN  OMXFBN
    statistics.read    -       OMXFBN  OMXFBN    OMXFBN   OMXFBN  OMXFBN
    runs.read          OMXFB   OMXFB   OMXFB     OMXFB    OMXFB   MFB
    questions.read     -       OMXFB   OMXFB     OMXFB    OMXFB   MFB
    runs.create        OMXFB   OMXFB   OMXFB     -        OMXFB   -
    runs.cancel        MB      OMXFB   OMXFB     MFB      OMXFB   MFB
    runs.message       MB      MB      MFB       MFB      MFB     MFB
    agents.stop        -       OMXFB   OMXFB     -        OMXFB   -
    agents.switch      -       OMXFB   OMXFB     -        OMXFB   -
    agents.switch_all  -       -       -         -        OMXFBN  -
    triggers.list      -       OMXFBN  OMXFBN    OMXFBN   OMXFBN  -
    triggers.pause     -       OMXFB   OMXFB     -        OMXFB   -
    questions.decide   -       OMXFB   OMXFB     -        OMXFB   -
    questions.answer   -       OMXFB   OMXFB     -        OMXFB   -
    questions.assign   -       OMXFB   OMXFB     -        OMXFB   -
    questions.comment  -       OMXFB   OMXFB     OMXFB    OMXFB   MFB
    runs.undo          -       OMXFB   OMXFB     -        OMXFB   -
    consents.give      -       -       F         F        F       F
    consents.own       -       -       OMXFBN    OMXFBN   OMXFBN  OMXFBN
    policy.read        -       OMXFB   OMXFB     OMXFB    OMXFB   -
    policy.keep        -       OMXFB   OMXFB     -        OMXFB   -
    mcp.list           -       OMXFBN  OMXFBN    OMXFBN   OMXFBN  -
    mcp.read           -       OMXFB   OMXFB     OMXFB    OMXFB   -
    mcp.accept         -       OMXFB   OMXFB     -        OMXFB   -
    audit.export       -       -       -         OMXFB    OMXFB   -
    audit.forward      -       -       -         OMXFB    OMXFB   -
    audit.verify_run   -       OMXFB   OMXFB     OMXFB    OMXFB   -
    audit.verify       -       -       -         OMXFBN   OMXFBN  -
    audit.checkpoints  -       -       -         OMXFBN   OMXFBN  -
    audit.forwarders   -       -       -         OMXFBN   OMXFBN  -
    audit.retry        -       -       -         -        OMXFBN  -
    audit.journal      -       -       -         OMXFBN   OMXFBN  -
    notices.read       -       OMXFBN  OMXFBN    OMXFBN   OMXFBN  -
    notices.manage     -       -       -         -        OMXFBN  -
    keys.read          -       -       -         OMXFBN   OMXFBN  -
    keys.manage        -       -       -         -        OMXFBN  -
    accounts.read      -       -       -         OMXFBN   OMXFBN  -
    accounts.manage    -       -       -         -        OMXFBN  -
    identity.own       OMXFBN  OMXFBN  OMXFBN    OMXFBN   OMXFBN  OMXFBN
    accounts.own       -       -       OMXFBN    OMXFBN   OMXFBN  OMXFBN
    published.read     OMXFBN  OMXFBN  OMXFBN    OMXFBN   OMXFBN  OMXFBN
"""

WHO = {
    "agent": Principal(name="key:bot", kind="key", roles=frozenset({Role.AGENT})),
    "key": Principal(name="key:desk", kind="key", roles=frozenset({Role.OPERATOR})),
    "operator": Principal(name="user:olga", kind="person", roles=frozenset({Role.OPERATOR})),
    "auditor": Principal(name="user:aude", kind="person", roles=frozenset({Role.AUDITOR})),
    "admin": Principal(name="user:adam", kind="person", roles=frozenset({Role.ADMIN})),
    "nobody": Principal(name="user:nick", kind="person"),
}

DECISIONS = (Operation.DECIDE, Operation.ANSWER, Operation.UNDO_RUN, Operation.CONSENT)


def with_agents(who: Principal, agents: frozenset[str] | None) -> Principal:
    return Principal(name=who.name, kind=who.kind, roles=who.roles, agents=agents)


def run_of(letter: str, who: Principal) -> RunOwnershipData | None:
    match letter:
        case "O":
            return RunOwnershipData(agent="mine", requester="user:else", created_by="key:else")
        case "M":
            return RunOwnershipData(agent="mine", requester="user:else", created_by=who.name)
        case "X":
            return RunOwnershipData(agent="theirs", requester="user:else", created_by="key:else")
        case "F":
            return RunOwnershipData(agent="theirs", requester=who.name, created_by="key:else")
        case "B":
            return RunOwnershipData(agent="theirs", requester="user:else", created_by=who.name)
        case _:
            return None


def rows(table: str) -> Iterator[tuple[str, dict[str, str]]]:
    heads, *lines = (line.split() for line in table.strip().splitlines())
    for operation, *cells in lines:
        yield operation, dict(zip(heads[1:], ("" if cell == "-" else cell for cell in cells), strict=True))


@pytest.mark.parametrize(
    ("table", "agents"), [(OWNERS_OF_ONE, frozenset({"mine"})), (OWNERS_OF_ALL, None)], ids=["one agent", "all agents"]
)
def test_every_cell_says_what_is_written_here(table: str, agents: frozenset[str] | None) -> None:
    actual = {
        operation: {
            role: "".join(letter for letter in ABOUT if is_allowed(who, Operation(operation), run_of(letter, who)))
            for role, who in ((role, with_agents(who, agents)) for role, who in WHO.items())
        }
        for operation, _ in rows(table)
    }

    assert actual == dict(rows(table))


@pytest.mark.parametrize("table", [OWNERS_OF_ONE, OWNERS_OF_ALL], ids=["one agent", "all agents"])
def test_every_operation_is_in_the_tables(table: str) -> None:
    assert {operation for operation, _ in rows(table)} == set(Operation)
    assert set(PERMISSIONS) == set(Operation)
    assert set(RELATIONSHIPS) <= set(Operation)
    assert all(set(row) == set(Role) for row in PERMISSIONS.values())


AGENTS = st.sampled_from(("mine", "theirs", "third"))
NAMES = st.sampled_from(("user:ada", "user:bob", "key:bot", "schedule:nightly", ""))
ROLES = st.frozensets(st.sampled_from(Role))
OWNED = st.none() | st.frozensets(AGENTS)
RUNS = st.builds(RunOwnershipData, agent=AGENTS, requester=NAMES, created_by=NAMES)
PRINCIPALS = st.builds(
    Principal,
    name=st.sampled_from(("user:ada", "key:bot", "schedule:nightly")),
    kind=st.sampled_from(("person", "key", "system")),
    roles=ROLES,
    agents=OWNED,
)
OPERATIONS = st.sampled_from(Operation)


@given(PRINCIPALS, OPERATIONS, st.none() | RUNS, st.frozensets(AGENTS))
def test_owning_fewer_agents_never_allows_more(
    who: Principal, operation: Operation, run: RunOwnershipData | None, fewer: frozenset[str]
) -> None:
    narrowed = with_agents(who, fewer if who.agents is None else who.agents & fewer)

    assert is_allowed(who, operation, run) or not is_allowed(narrowed, operation, run)


@given(PRINCIPALS, OPERATIONS, st.none() | RUNS, st.sampled_from([role for role in Role if role is not Role.AGENT]))
def test_one_more_role_takes_nothing_away(
    who: Principal, operation: Operation, run: RunOwnershipData | None, more: Role
) -> None:
    promoted = Principal(name=who.name, kind=who.kind, roles=who.roles | {more}, agents=who.agents)

    assert is_allowed(promoted, operation, run) or not is_allowed(who, operation, run)


@given(PRINCIPALS, st.none() | RUNS)
def test_the_role_of_an_agent_never_decides_whatever_else_is_with_it(
    who: Principal, run: RunOwnershipData | None
) -> None:
    agent = Principal(name=who.name, kind=who.kind, roles=who.roles | {Role.AGENT}, agents=who.agents)
    alone = Principal(name=who.name, kind=who.kind, roles=frozenset({Role.AGENT}), agents=who.agents)

    assert not any(is_allowed(agent, operation, run) for operation in DECISIONS)
    assert all(is_allowed(agent, operation, run) == is_allowed(alone, operation, run) for operation in Operation)


@given(PRINCIPALS, RUNS)
def test_consent_is_only_ever_given_by_the_person_whom_the_run_acts_for(who: Principal, run: RunOwnershipData) -> None:
    if is_allowed(who, Operation.CONSENT, run):
        assert who.kind == "person"
        assert who.name == run.requester


@given(PRINCIPALS, RUNS)
def test_a_list_shows_exactly_the_runs_that_may_be_read(who: Principal, run: RunOwnershipData) -> None:
    agents, person = get_visibility(who)
    in_list = (agents is None and person is None) or (
        run.agent in (agents or ()) or (person is not None and person in (run.requester, run.created_by))
    )

    assert in_list == is_allowed(who, Operation.READ_RUN, run)


def test_a_row_of_a_list_can_be_asked_about_as_it_is() -> None:
    row = RunRow(run_id="run_1", agent="mine", state=RunState.RUNNING, created_at=1, updated_at=1, last_seq=0)

    assert is_allowed(with_agents(WHO["operator"], frozenset({"mine"})), Operation.CANCEL_RUN, row)
