"""What keeps `interlock serve` from starting is one sentence that says so, and a stop is told."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from interlock.cli.config.server_files import prepare_server_files
from tests.patience import HANG_SECONDS

from .conftest import Run
from .test_serve import served

DEMO = ("serve", "--demo", "--port", "0")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '[[schedules]]\nname="x"\nagent="refund"\ntask="t"\nevery_seconds=5',
            "Unknown agent `refund`. Did you mean `refunds`?",
        ),
        ('[[schedules]]\nname="x"\nagent="refunds"\ntask="t"\ncron="61 * * * *"', "cannot be read: Bad minute."),
        ('[[webhooks]]\nname="x"\nagent="refunds"\ntask="t"\nsecret_env="NO_SUCH"', "NO_SUCH has none."),
        ('[[forward]]\nkind="file"\nname="x"\npath="here.ndjson"', "its path is not absolute."),
        ('[server]\ntrusted_proxies=["*"]', "trusted_proxies has '*', which is no address and no network."),
        ('[server]\nhost="999.1.1.1"', "Cannot listen on 999.1.1.1"),
    ],
)
def test_settings_that_cannot_work_start_nothing_and_say_so(cli: Run, tmp_path: Path, text: str, words: str) -> None:
    config = tmp_path / "serve.toml"
    config.write_text(text)

    said = cli(*DEMO, "--config", config)

    assert (said.exit_code, said.stdout) == (2, "")
    assert words in said.stderr
    assert said.stderr.count("Nothing was started.") == 1


def test_a_key_with_a_pass_phrase_is_refused_and_nobody_is_asked_for_it(cli: Run, tmp_path: Path) -> None:
    key, config = tmp_path / "key.pem", tmp_path / "serve.toml"
    secret = Ed25519PrivateKey.generate()
    key.write_bytes(secret.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"open sesame")))
    config.write_text(f"[server]\ntls_certificate = '{key}'\ntls_key = '{key}'\n")

    said = cli(*DEMO, "--config", config)

    assert said.exit_code == 2
    assert "need no pass phrase. Nothing was started." in said.stderr


def test_files_that_nobody_can_open_start_nothing(cli: Run, home: Path) -> None:
    state = prepare_server_files(None).state
    (state / "server.lock").mkdir()

    said = cli(*DEMO)

    assert said.exit_code == 2
    assert "server.lock cannot be opened: Is a directory. Nothing was started." in said.stderr

    (state / "server.lock").rmdir()
    (state / "runs.db").write_text("this is no database, and long enough to be taken for one" * 20)
    said = cli(*DEMO)

    assert said.exit_code == 2
    assert "Nothing was started." in said.stderr


def test_no_account_is_made_by_a_start_that_fails(cli: Run, home: Path) -> None:
    state = prepare_server_files(None).state
    (state / "index.db").mkdir()

    assert cli(*DEMO).exit_code != 0
    assert "No accounts yet" in cli("accounts", "list").stdout


def test_a_stop_is_told(tmp_path: Path) -> None:
    with served(tmp_path, "--demo") as server:
        server.process.terminate()
        said, wrong = server.process.communicate(timeout=HANG_SECONDS)

    assert (server.process.returncode, said, wrong) == (0, "Stopping.\nStopped.\n", "")
