"""Faults that a user can cause. Each message is one line: what is wrong, and what would be right.

OutriderError
├── ModelError        a checkpoint, tokenizer or hub id that cannot be loaded
├── DrafterError      a drafter that cannot be loaded, or does not fit its target
├── NumericsError     a model whose states or logits are not finite
└── RequestError      a prompt or a sampling parameter that cannot be served

Apart from them stands InvariantError: a fault of the engine itself.
"""

from __future__ import annotations

# Known by its name to type checkers; errors are imported before a command can be interrupted
# without a word, so they import nothing themselves.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outrider.types.output import RequestOutput


class OutriderError(Exception):
    """Base of every fault that is reported to the user in one line."""

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle and copy by text and attributes, which a constructor may take in other forms."""
        return _restored, (type(self), self.args), self.__dict__


class ModelError(OutriderError):
    """A checkpoint, tokenizer or hub id cannot be loaded."""


class DrafterError(OutriderError):
    """A drafter cannot be loaded, or does not fit the target."""


class NumericsError(OutriderError):
    """A model's states or logits are not finite, so no token can be chosen.

    One request meets it and its neighbours do not, so a call of many requests raises it once all
    of them have ended.

    Attributes:
        place: the first part of the model whose output was not finite.
        outputs: what every request of the call has, in their order; the ``error`` of those that
            failed is set, and the others are whole. Empty if it was not raised by such a call.
    """

    def __init__(self, place: str, outputs: Sequence[RequestOutput] = ()) -> None:
        super().__init__(
            f"the model's output is not finite (NaN or infinite) from {place} on, so no token can "
            "be chosen; its weights are damaged, or do not fit this architecture"
        )
        self.place = place
        self.outputs = list(outputs)


class RequestError(OutriderError):
    """A prompt or a sampling parameter cannot be served.

    Attributes:
        parameter: name of the offending parameter, as the user typed it.
    """

    def __init__(self, parameter: str, message: str) -> None:
        super().__init__(f"{parameter}: {message}")
        self.parameter = parameter


class InvariantError(AssertionError):
    """Something that always holds does not: the fault is the engine's, not the user's.

    Exactness rests on what raises it, so it is raised by name and never by an ``assert``
    statement, which ``python -O`` leaves out.
    """


def _restored(kind: type[OutriderError], texts: tuple[object, ...]) -> OutriderError:
    """An error with the text of another; its attributes are set afterwards."""
    return kind.__new__(kind, *texts)
