"""The benchmark of the server: small, it measures every figure that is shown, and what it says is judged right."""

import asyncio
from pathlib import Path

import pytest

from bench.service import figures, measure, render
from bench.service_client import Answer, Client, Stream
from bench.service_measures import SECTIONS, Series, Sizes, quantile

SMALL = Sizes(
    rounds=1,
    listed=5,
    made=3,
    readers=4,
    events_per_second=50,
    live_seconds=0.2,
    approvals=2,
    paused=2,
    live=1,
    waiting=2,
    connections=2,
    load_seconds=0.1,
    logins=1,
    look_seconds=0.1,
    starts=(5,),
)


@pytest.mark.soak
@pytest.mark.parametrize("section", SECTIONS)
def test_a_section_measures_the_figures_that_are_shown_of_it(section: str, tmp_path: Path) -> None:
    found = measure(tmp_path, SMALL, [section])

    shown = [figure for figure in figures(SMALL) if figure.section == section]
    assert set(found[section]) == {name for figure in shown for name in (figure.ours, figure.reference) if name}
    assert len(render(found, SMALL)) == 2 + len(shown)
    assert found[section].get("lost", [0.0]) == found[section].get("twice", [0.0]) == [0.0]


def test_a_ratio_is_taken_within_a_round_and_compared_with_its_limit() -> None:
    parts = ("p99", "p50", "cpu", "rate")
    series: Series = {f"ours {part}": [6.0, 8.0, 90.0] for part in parts}
    series |= {f"empty {part}": [1.0, 2.0, 10.0] for part in parts}

    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in render({"load": series}, SMALL)[2:]]

    assert [row[1:] for row in rows] == [["8.00", "2.00", "6.00x", "<= 5x", "MISSED"]] + [
        ["8.00", "2.00", "6.00x", "", ""]
    ] * 3


def test_what_is_judged_by_itself_is_the_median() -> None:
    series: Series = {"listed": [49.0, 50.0, 60.0], "listed at worst": [60.0], "listed cpu": [9.0], "idle": [0.0]}

    first = render({"lists": series}, SMALL)[2]

    assert [cell.strip() for cell in first.split("|")[2:-1]] == ["50.0", "", "", "<= 50", "ok"]


def test_a_quantile_is_a_value_that_was_measured() -> None:
    values = [float(number) for number in range(100)]

    assert (quantile(values, 0.5), quantile(values, 0.99), quantile([3.0], 0.99)) == (50.0, 99.0, 3.0)


async def test_an_answer_that_comes_in_pieces_is_one() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for piece in (b"HTTP/1.1 409 Conflict\r\nContent-Le", b"ngth: 4\r\n\r", b"\nab", b"cd"):
            writer.write(piece)
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        answer = await Client(server.sockets[0].getsockname()[1]).ask("GET", "/")

    assert answer == Answer(409, b"abcd")


def test_events_of_a_stream_are_told_once_however_they_are_cut() -> None:
    event = b'2b\r\nid: %d\nevent: warning\ndata: {"n":%d}\n\n\r\n'
    sent = b"HTTP/1.1 200 OK\r\n\r\n" + b"".join(event % (number, number) for number in range(20))
    for size in (1, 7, 50, len(sent)):
        told: list[bytes] = []
        stream = Stream(lambda text, now, told=told: told.append(text))

        for begin in range(0, len(sent), size):
            stream.data_received(sent[begin : begin + size])

        assert told == [b'{"n":%d}' % number for number in range(20)]
