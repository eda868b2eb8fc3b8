"""Tokens in the server's database: kept across restarts, bound to their rows, and not readable there."""

import sqlite3
from pathlib import Path

import msgspec
import pytest

from interlock.oauth.consents import ConsentResult, OAuthConsents
from interlock.oauth.flow import Callback
from interlock.server.core.database.sqlite import SqliteDatabase
from interlock.server.core.sealing import SealingKeys
from interlock.server.core.token_table import TokenTable
from tests.oauth.scene import ADA, BINDING, READ, REDIRECT, at_provider, bound_to, gives

OLD_WORDS = ("grant", "user:ada", "read_mail")
SECRETS = ("a-very-secret-access-token", "a-very-secret-refresh-token")


def _bytes_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir())


async def test_tokens_outlive_the_process_and_are_found_by_the_same_key_only(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "server.db")
    async with at_provider(store=TokenTable(database)) as scene:
        await scene.consent()
        database.close()

        reopened = SqliteDatabase(tmp_path / "server.db")
        provider = scene.consents._clients["mail"].provider  # pyright: ignore[reportPrivateUsage]
        for key, token in ((b"k" * 32, "access-1"), (b"x" * 32, None)):
            consents = OAuthConsents([provider], TokenTable(reopened), SealingKeys([key]), scene.clock)
            assert await consents.token(BINDING, READ) == token
        reopened.close()


async def test_neither_tokens_nor_states_are_in_the_bytes_of_the_database(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "server.db")
    access, refresh = SECRETS
    async with at_provider(store=TokenTable(database), answer=gives(access, refresh_token=refresh)) as scene:
        begun = await scene.consents.begin(ADA, REDIRECT, "a-session-id")
        await scene.consents.finish(Callback(state=begun.state, code="a-code"), "user:ada", "a-session-id")
        waiting = await scene.consents.begin(ADA, REDIRECT, "a-session-id")
        scene.clock.forward(3600)
        await scene.consents.token(BINDING, READ)
        verifier = scene.endpoint.forms[0]["code_verifier"]

    files = _bytes_in(tmp_path)
    for secret in (*SECRETS, begun.state, waiting.state, verifier, "a-session-id", "a-code"):
        assert secret.encode() not in files
    assert b"read_mail" in files
    database.close()


@pytest.mark.requirement("P23")
async def test_a_row_in_the_place_of_another_is_worth_nothing() -> None:
    database = SqliteDatabase(":memory:")
    table = TokenTable(database)
    async with at_provider(store=table) as scene:
        await scene.consent()
        kept = await table.load(BINDING)
        assert kept
        others = [{"user": "user:eve"}, {"agent": "other"}, {"tool": "send_mail"}, {"definition": "sha256:2"}]
        for other in others:
            await table.save(msgspec.structs.replace(kept, binding=bound_to(**other)))
            assert await scene.consents.token(bound_to(**other), READ) is None
        assert await scene.consents.token(BINDING, READ) == "access-1"
    database.close()


@pytest.mark.requirement("P23")
async def test_tokens_of_the_old_form_ask_again(tmp_path: Path) -> None:
    """Versions before bound a token to user and tool only."""
    old = sqlite3.connect(tmp_path / "server.db")
    old.executescript(
        "CREATE TABLE oauth_tokens (user TEXT, tool TEXT, provider TEXT, scopes TEXT, since INTEGER,"
        " expires_at INTEGER, sealed BLOB, PRIMARY KEY (user, tool)) WITHOUT ROWID; PRAGMA user_version = 1"
    )
    sealed = SealingKeys([b"k" * 32]).seal(b'{"provider":"mail","since":1,"tokens":{"access_token":"x"}}', OLD_WORDS)
    row = ("user:ada", "read_mail", "mail", '["mail.read"]', 1, 0, sealed)
    old.execute("INSERT INTO oauth_tokens VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    old.commit()
    old.close()

    database = SqliteDatabase(tmp_path / "server.db")
    async with at_provider(store=TokenTable(database)) as scene:
        assert await scene.consents.needs_consent(BINDING, READ)
        assert await scene.consents.list_grants("user:ada") == ()
        await scene.consent()
        assert await scene.consents.token(BINDING, READ) == "access-1"
    names = "SELECT name FROM sqlite_master WHERE name = 'oauth_tokens'"
    assert database.run_now(lambda connection: connection.execute(names).fetchall()) == []
    database.close()


async def test_what_a_row_says_in_plain_decides_nothing() -> None:
    database = SqliteDatabase(":memory:")
    table = TokenTable(database)
    async with at_provider(store=table, answer=gives(scope="mail.read")) as scene:
        await scene.consent()
        kept = await table.load(BINDING)
        assert kept
        await table.save(msgspec.structs.replace(kept, scopes=("mail.read", "mail.send"), expires_at=2**60))

        more = msgspec.structs.replace(READ, scopes=("mail.send",))
        assert await scene.consents.token(BINDING, more) is None
        scene.clock.forward(3600)
        assert await scene.consents.needs_consent(BINDING, READ)
    database.close()


async def test_of_a_way_that_is_over_nothing_is_kept() -> None:
    database = SqliteDatabase(":memory:")
    async with at_provider(store=TokenTable(database)) as scene:
        assert isinstance(await scene.consent(), ConsentResult)
        await scene.consents.begin(ADA, REDIRECT, "session")
        flows = "SELECT sealed IS NULL FROM oauth_flows ORDER BY number"
        assert database.run_now(lambda connection: connection.execute(flows).fetchall()) == [(1,), (0,)]

        scene.clock.forward(600)
        await scene.consents.begin(ADA, REDIRECT, "session")
        assert database.run_now(lambda connection: connection.execute(flows).fetchall()) == [(0,)]
    database.close()
