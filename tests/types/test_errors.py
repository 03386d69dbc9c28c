"""Errors go between processes: a pool pickles what its workers raise."""

from __future__ import annotations

import ast
import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import outrider
from outrider.cli.arguments import UsageError
from outrider.cli.main import TerminatedError
from outrider.cli.streams import ReaderGoneError, StreamError
from outrider.types.errors import (
    DrafterError,
    InvariantError,
    ModelError,
    NumericsError,
    OutriderError,
    RequestError,
)
from outrider.types.output import Metrics, RequestOutput, Timings
from outrider.types.telemetry import Telemetry


def failed_output() -> RequestOutput:
    """What a request that failed leaves: an error inside of a value."""
    metrics = Metrics(Timings(0.0, 0.1, 0.2), Telemetry(), "none")
    return RequestOutput("req-1", "Hi", [3, 4], [], True, metrics, NumericsError("layer 1"))


def with_attributes() -> OutriderError:
    """An error that tells more than its class says."""
    error = NumericsError("layer 3")
    error.__dict__["outputs"] = [failed_output()]
    error.add_note("a note")
    return error


ERRORS: list[BaseException] = [
    OutriderError("a text"),
    OutriderError(),
    ModelError("m: cannot be loaded"),
    DrafterError("d: does not fit"),
    NumericsError("layer 3"),
    RequestError("temperature", "must be in [0, 100], not -1"),
    InvariantError("rows are staged"),
    StreamError("standard output is closed"),
    UsageError("no such option"),
    ReaderGoneError(),
    TerminatedError(),
    with_attributes(),
]
WAYS: dict[str, Callable[[Any], Any]] = {
    **{
        f"pickle-{protocol}": lambda one, protocol=protocol: pickle.loads(
            pickle.dumps(one, protocol)
        )
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
    },
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


def seen(value: object) -> object:
    """What can be compared: errors are equal only to themselves."""
    if isinstance(value, BaseException):
        inside = {name: seen(one) for name, one in vars(value).items()}
        return type(value), str(value), value.args, inside
    if isinstance(value, list):
        return [seen(one) for one in value]
    if isinstance(value, RequestOutput):
        return {name: seen(one) for name, one in vars(value).items()}
    return value


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_survive_with_their_text_and_attributes(error: BaseException, way: str) -> None:
    once = WAYS[way](error)
    assert once is not error
    assert seen(once) == seen(error)
    assert seen(WAYS[way](once)) == seen(error)


def test_every_error_is_among_them() -> None:
    sources = Path(outrider.__file__).parent.rglob("*.py")
    nodes = [node for source in sources for node in ast.walk(ast.parse(source.read_bytes()))]
    named = {node.name for node in nodes if isinstance(node, ast.ClassDef)}
    errors = {name for name in named if name.endswith("Error")}
    assert errors == {type(error).__name__ for error in ERRORS}


POOL = """
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from outrider import NumericsError, RequestError, SamplingParams


def work(number):
    if number:
        raise NumericsError("layer 3")
    SamplingParams(temperature=-1)


if __name__ == "__main__":
    with get_context("fork").Pool(1) as pool:
        try:
            pool.apply_async(work, (0,)).get(30)
        except RequestError as error:
            print(error.parameter, error)
    with ProcessPoolExecutor(1) as pool:
        for number in (0, 1):
            try:
                pool.submit(work, number).result(30)
            except (RequestError, NumericsError) as error:
                print(error)
"""


def test_a_pool_tells_its_parent() -> None:
    done = subprocess.run(
        [sys.executable, "-c", POOL], capture_output=True, text=True, timeout=100, check=False
    )
    refused = "temperature: must be in [0, 100], not -1"
    assert done.stdout.splitlines() == [f"temperature {refused}", refused, str(ERRORS[4])]
