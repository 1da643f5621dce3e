"""How long what is outside of a process may take, and waits for it that say so and that Ctrl-C ends."""

import contextlib
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from http.client import HTTPException
from typing import NoReturn, TypeVar
from urllib.request import Request, urlopen

from trainables.common.cli import print_line
from trainables.common.errors import InputError

CONNECT_TIMEOUT, ANSWER_TIMEOUT, START_TIMEOUT, TEMPLATE_RENDER_TIMEOUT = 10.0, 30.0, 60.0, 10.0
"""For a connection, a server's whole answer, Ray's first process on a node, a template's text of a conversation."""
NOTICE_SECONDS, WAIT_NOTICE_INTERVAL_SECONDS = 5.0, 20.0
"""Of a wait until it is told of, and between two further lines."""
T = TypeVar("T")


def call_within(seconds: float, what: str, call: Callable[[], T]) -> T:
    """Return what `call` returns, and tell that it is waited for. Raises TimeoutError after `seconds`.

    It runs in a thread, so that neither the deadline nor Ctrl-C waits for a library that waits itself.
    """
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, name=what, daemon=True).start()
    begun, told = time.monotonic(), NOTICE_SECONDS
    while not wait([future], begun + min(told, seconds) - time.monotonic()).done:
        if told >= seconds:
            raise TimeoutError(f"{what} has not answered in {seconds:.0f} s")
        left = f", {seconds - told:.0f} s left" if seconds < float("inf") else f" for {told:.0f} s"
        print_line(f"waiting for {what}{left}", error=True)
        told += WAIT_NOTICE_INTERVAL_SECONDS
    return future.result()


def check_server_responds(url: str, name: str, advice: str) -> None:
    """Raise InputError if a server does not answer, or says that it cannot now; of other problems its client tells."""
    url = re.sub("//[^/]*@", "//", url)  # urllib takes no user and password
    try:
        call_within(ANSWER_TIMEOUT, f"{name} at {url}", lambda: urlopen(Request(url, method="HEAD")).close())
    except TimeoutError as error:
        raise InputError(f"{error}; {advice}") from error
    except (OSError, ValueError, HTTPException) as error:
        if getattr(error, "code", 0) in (500, 502, 503, 504):
            raise InputError(f"{name} at {url} answers {error}; {advice}") from error


@contextlib.contextmanager
def raise_timeout_after(seconds: float) -> Iterator[None]:
    """Raise TimeoutError out of a block of Python that takes longer; in a main thread only, where signals come."""

    def interrupt(number: int, frame: object) -> NoReturn:
        raise TimeoutError(f"it does not end within {seconds:.0f} s")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
