"""The engine: requests in, tokens out, one round at a time."""

from outrider.engine.engine import Engine
from outrider.engine.request import Request

__all__ = ["Engine", "Request"]
