"""Who waits for an answer on a terminal: nobody there, several questions, questions that are given up."""

import asyncio
import io
import os
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from interlock.domain.call import Answer
from interlock.interaction.interface import InteractionProvider
from interlock.interaction.terminal import TerminalInteractionProvider
from interlock.interaction.terminal_screen import WithdrawalSignal
from tests.patience import HANG_SECONDS
from tests.pipeline.approval.person import PROMPT, Person, at_terminal, make_question
from tests.pipeline.approval.provider_suite import ProviderSuite
from tests.pipeline.approval.test_terminal import ENDED, YES, plain
from tests.pipeline.approval.test_terminal_edit import editor_that

NOBODY = Answer(approved=False, reason="There is no terminal to ask a person on.", by="terminal")


@pytest.fixture
def person() -> Generator[Person]:
    with at_terminal() as person:
        yield person


class TestWithoutTerminal(ProviderSuite):
    def make(self, **settings: Any) -> InteractionProvider:
        return TerminalInteractionProvider(keys=io.StringIO("y"), output=io.StringIO(), **settings)


class TestWithTerminal(ProviderSuite):
    @pytest.fixture(autouse=True)
    def someone(self, person: Person) -> Generator[None]:
        """Types y at every prompt."""
        self.person = person
        self.left = False
        typist = threading.Thread(target=self._type, daemon=True)
        typist.start()
        yield
        self.left = True
        person.output.write("left: ")
        person.output.flush()
        typist.join(HANG_SECONDS)

    def make(self, **settings: Any) -> InteractionProvider:
        return self.person.provider(**settings)

    def _type(self) -> None:
        while True:
            seen = self.person.waits_for("Value: ", PROMPT, "left: ")
            if self.left:
                return
            self.person.types("y\n" if "Value: " in seen else "y")


async def test_without_a_terminal_the_answer_is_no_in_words(tmp_path: Path, person: Person) -> None:
    closed = (tmp_path / "closed").open("w+")
    closed.close()
    with (tmp_path / "file").open("w+") as file:
        for keys, output in [
            (file, person.output),
            (person.keys, file),
            (closed, closed),
            (io.StringIO(), io.StringIO()),
        ]:
            provider = TerminalInteractionProvider(keys=keys, output=output)

            assert provider.interactive is False
            assert await asyncio.wait_for(provider.ask(make_question()), HANG_SECONDS) == NOBODY


async def test_the_standard_streams_are_used_unless_others_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y"))
    monkeypatch.setattr(sys, "stderr", None)

    assert await TerminalInteractionProvider().ask(make_question()) == NOBODY


async def test_on_a_terminal_a_person_is_there(person: Person) -> None:
    assert person.provider().interactive is True


async def test_a_process_in_the_background_asks_nobody(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "tcgetpgrp", lambda fd: os.getpgrp() + 1)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]

    assert await person.provider().ask(make_question()) == NOBODY


async def test_the_loop_lives_while_a_person_thinks(person: Person) -> None:
    asking = asyncio.ensure_future(person.provider().ask(make_question()))
    await person.sees(PROMPT)

    turns = [await asyncio.to_thread(int, "1") for _ in range(20)]

    assert turns == [1] * 20
    assert not asking.done()
    person.types("y")
    assert await asyncio.wait_for(asking, HANG_SECONDS) == YES


async def test_questions_are_asked_one_at_a_time_in_the_order_they_came(person: Person) -> None:
    provider = person.provider()
    asking = [asyncio.ensure_future(provider.ask(make_question({"n": number}))) for number in range(5)]

    for number in range(5):
        seen = await person.sees(PROMPT)
        assert f"  n = {number}\n" in seen
        assert seen.count("asked: ") == 1
        person.types("y" if number % 2 else "\x04")

    assert await asyncio.wait_for(asyncio.gather(*asking), HANG_SECONDS) == [ENDED, YES, ENDED, YES, ENDED]


async def test_a_question_that_timed_out_reads_no_more_keys(person: Person) -> None:
    provider, before = person.provider(), termios.tcgetattr(person.keys.fileno())
    asking = asyncio.ensure_future(asyncio.wait_for(provider.ask(make_question()), 0.2))
    await person.sees(PROMPT)
    with pytest.raises(TimeoutError):
        await asking

    assert "It is not asked here any more." in await person.sees("any more.")
    assert not a_thread_still_asks()
    assert termios.tcgetattr(person.keys.fileno()) == before
    person.typed_ahead("for somebody else\n")
    assert person.keys.readline() == "for somebody else\n"


async def test_half_an_answer_to_a_question_that_was_given_up_is_forgotten(person: Person) -> None:
    provider = person.provider()
    asking = asyncio.ensure_future(provider.ask(make_question()))
    await person.sees(PROMPT)
    person.types("n")
    await person.sees("(Enter: none): ")
    person.types("half")
    await person.sees("half")
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking

    assert await person.answers(make_question(), "y") == YES


async def test_a_question_that_is_given_up_in_line_is_never_asked(person: Person) -> None:
    provider = person.provider()
    first, second, third = (
        asyncio.ensure_future(provider.ask(make_question({"n": number}))) for number in ("first", "second", "third")
    )
    await person.sees(PROMPT)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    person.types("y")
    await person.sees(PROMPT)
    person.types("y")

    assert [await first, await third] == [YES, YES]
    assert "second" not in plain(person)


async def test_a_question_that_is_given_up_ends_its_editor(
    person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    does = "import signal\nprint('EDITING', flush=True)\nsignal.pause()"
    monkeypatch.setenv("VISUAL", editor_that(does, tmp_path))
    asking = asyncio.ensure_future(person.provider().ask(make_question()))
    await person.sees(PROMPT)
    person.types("e")
    await person.sees("EDITING")

    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking

    assert "It is not asked here any more." in await person.sees("any more.")
    assert not a_thread_still_asks()


def test_a_withdrawal_may_come_before_the_editor_and_after_the_end() -> None:
    withdrawal = WithdrawalSignal()
    withdrawal.request()
    with subprocess.Popen(["sleep", "60"]) as editor:
        withdrawal.set_editor(editor)

        assert editor.wait(HANG_SECONDS) == -signal.SIGTERM
    withdrawal.set_editor(None)
    withdrawal.close()
    withdrawal.request()
    assert withdrawal.is_requested


async def test_a_terminal_that_goes_away_is_no() -> None:
    with at_terminal() as person:
        asking = asyncio.ensure_future(person.provider().ask(make_question()))
        await person.sees(PROMPT)
        person.hangs_up()

        answer = await asyncio.wait_for(asking, HANG_SECONDS)

    assert answer is not None
    assert not answer.approved


async def test_a_terminal_in_another_mode_is_put_back_into_it(person: Person) -> None:
    fd = person.keys.fileno()
    mode = termios.tcgetattr(fd)
    mode[0] &= ~termios.ICRNL
    mode[3] &= ~(termios.ICANON | termios.ECHO)
    termios.tcsetattr(fd, termios.TCSANOW, mode)
    before = termios.tcgetattr(fd)

    assert await person.answers(make_question(), "y") == YES
    assert termios.tcgetattr(fd) == before


async def test_a_question_that_cannot_be_shown_is_refused_in_words(person: Person) -> None:
    question = make_question({"not json": {1, 2}})

    answer = await asyncio.wait_for(person.provider().ask(question), HANG_SECONDS)

    assert answer == Answer(
        approved=False,
        reason="The terminal could not be used: TypeError: Object of type set is not JSON serializable",
        by="terminal",
    )
    assert await person.answers(make_question(), "y") == YES


def a_thread_still_asks() -> bool:
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("question-")]
    for thread in threads:
        thread.join(HANG_SECONDS)
    return any(thread.is_alive() for thread in threads)
