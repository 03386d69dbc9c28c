"""Stop strings, found anywhere in a text that arrives in pieces."""

from __future__ import annotations


class _Matcher:
    """Follows one stop string: how much of its beginning the text now ends with.

    Attributes:
        stop: the string.
        matched: length of the longest beginning of ``stop``, short of all of it, that the text read
            so far ends with.
    """

    def __init__(self, stop: str) -> None:
        if not stop:
            raise ValueError("a stop string must not be empty")
        self.stop = stop
        self.matched = 0
        # borders[n]: longest proper beginning of stop[:n] that stop[:n] also ends with.
        self._borders = [0, 0]
        for end in range(1, len(stop)):
            self._borders.append(self._advance(self._borders[end], stop[end]))

    def _advance(self, matched: int, character: str) -> int:
        while matched and self.stop[matched] != character:
            matched = self._borders[matched]
        return matched + (self.stop[matched] == character)

    def push(self, character: str) -> bool:
        """Read one character; return whether it completes the stop string."""
        advanced = self._advance(self.matched, character)
        complete = advanced == len(self.stop)
        # One that does not count may overlap with one that does: go on from what it ends with.
        self.matched = self._borders[advanced] if complete else advanced
        return complete


class StopStrings:
    """Cuts a text at the first stop string.

    The first is the one whose last character comes first, so that no later text is needed to know
    it; if several end there, it is the longest. The text is read character by character: the
    result does not depend on how it is cut into pieces. Cost per character does not depend on the
    length of the text or of the strings.

    Text that is passed over cannot end the output, but it can hold the beginning of a stop string.
    """

    def __init__(self, stops: tuple[str, ...], include: bool) -> None:
        """``include`` keeps the stop string at the end of the text.

        Raises:
            ValueError: a stop string is empty.
        """
        self._matchers = [_Matcher(stop) for stop in stops]
        self._include = include
        self._held = ""
        self._hit: str | None = None

    def push(self, text: str) -> tuple[str, str | None]:
        """Read more text.

        Returns:
            The text that may be released now, and the stop string that ended it, if one did.
            Text is held back only while it could be the beginning of a stop string that is to be
            left out. After a hit nothing more is released.
        """
        if self._hit is not None:
            return "", self._hit
        if not self._matchers:
            return text, None
        pending = self._held + text
        for end in range(len(self._held), len(pending)):
            found = self._completed(pending[end])
            if found:
                self._hit = max(found, key=len)
                self._held = ""
                start = end + 1 - len(self._hit)
                return pending[: end + 1 if self._include else start], self._hit
        return self._release(pending), None

    def pass_over(self, text: str) -> str:
        """Read text in which no stop string counts that ends there; return what is released."""
        for character in text:
            self._completed(character)
        return self._release(self._held + text)

    def _completed(self, character: str) -> list[str]:
        """The stop strings that a character completes."""
        return [matcher.stop for matcher in self._matchers if matcher.push(character)]

    def _release(self, pending: str) -> str:
        """Hold back what may become part of a stop string, and return the rest."""
        keep = 0
        if not self._include:
            keep = max((matcher.matched for matcher in self._matchers), default=0)
        self._held = pending[len(pending) - keep :]
        return pending[: len(pending) - keep]

    def flush(self) -> str:
        """Return the text held back at the end; no stop string was completed in it."""
        held, self._held = self._held, ""
        return held
