"""Give all tests the same signals, however the run was started.

A script's background job ignores SIGINT and SIGQUIT, `nohup` ignores SIGHUP, and a caller may block any signal.
Programs inherit this, and a test that interrupts one would wait until its timeout.
"""

import signal

#: Ignored by Python itself, which gives programs the default again.
_IGNORED_BY_PYTHON = {signal.SIGPIPE, signal.SIGXFSZ}


def pytest_configure() -> None:
    """Make programs start with default signals and an empty mask.

    A handler that does nothing replaces an ignored signal. The run itself still survives the signal, and programs do
    not inherit a handler.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - _IGNORED_BY_PYTHON:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda _, __: None)
