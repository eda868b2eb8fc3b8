"""Signals of a command: who handles one, and which stay ignored."""

import asyncio
import signal
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager


@contextmanager
def signal_handlers(handlers: Mapping[signal.Signals, Callable[[], object]]) -> Generator[None]:
    """Call these on the running loop, and restore what was in force before.

    An ignored signal stays ignored: `nohup` ignores SIGHUP, and a script SIGINT in its background jobs, so that the
    command outlives the terminal. SIGTERM is always handled.
    """
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in handlers}
    handled = [number for number in handlers if number == signal.SIGTERM or before[number] is not signal.SIG_IGN]
    for number in handled:
        loop.add_signal_handler(number, handlers[number])
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number])
