"""Faults that a user can cause. Each message is one line: what is wrong, and what would be right.

OutriderError
├── ModelError        a checkpoint, tokenizer or hub id that cannot be loaded
├── DrafterError      a drafter that cannot be loaded, or does not fit its target
└── RequestError      a prompt or a sampling parameter that cannot be served
"""


class OutriderError(Exception):
    """Base of every fault that is reported to the user in one line."""


class ModelError(OutriderError):
    """A checkpoint, tokenizer or hub id cannot be loaded."""


class DrafterError(OutriderError):
    """A drafter cannot be loaded, or does not fit the target."""


class RequestError(OutriderError):
    """A prompt or a sampling parameter cannot be served.

    Attributes:
        parameter: name of the offending parameter, as the user typed it.
    """

    def __init__(self, parameter: str, message: str) -> None:
        super().__init__(f"{parameter}: {message}")
        self.parameter = parameter
