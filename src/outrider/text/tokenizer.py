"""Text to token ids and back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import tokenizers

from outrider.text.messages import checked_messages
from outrider.text.pieces import BYTE_TOKEN, SPACE_MARKER, PieceDecoder, piece_decoders
from outrider.text.template import ChatTemplate
from outrider.types.errors import RequestError
from outrider.types.lines import one_line


@dataclass(frozen=True)
class SpecialTokens:
    """What a checkpoint says about its tokenizer besides the vocabulary.

    Attributes:
        bos_id: token that begins a text, None if there is none.
        eos_ids: tokens that end an answer.
        named: template variables such as ``bos_token`` to the token's text.
        chat_template: the template's source, None if the checkpoint has none.
    """

    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()
    named: Mapping[str, str] | None = None
    chat_template: str | None = None


class Tokenizer:
    """A model's tokenizer.

    Attributes:
        source: the file it came from, for messages.
        bos_id: token that begins a text, None if there is none.
        eos_ids: tokens that end an answer, in the checkpoint's order.
        special_ids: tokens that are markup and not text.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        source: str,
        special: SpecialTokens,
        twins: Mapping[int, str] | None = None,
    ) -> None:
        """Wrap a tokenizer; its truncation and padding are switched off.

        Args:
            backend: the library's tokenizer.
            source: the file it came from, for messages.
            special: what it does not know itself.
            twins: spellings of ids that it has given away to others spelled alike.

        Raises:
            ModelError: its decoder is of a kind that cannot run token by token.
        """
        backend.no_truncation()
        backend.no_padding()
        self.source = source
        self.bos_id = special.bos_id
        self.eos_ids = special.eos_ids
        self._backend = backend
        self._special = special
        self._twins = twins or {}
        added = backend.get_added_tokens_decoder()
        self.special_ids = frozenset(token for token, entry in added.items() if entry.special)
        self._added = {
            token: entry.content
            for token, entry in added.items()
            if not _is_spelling(backend, token, entry.content)
        }
        state = None if backend.decoder is None else json.loads(backend.decoder.__getstate__())
        self._make_decoder = piece_decoders(source, state)

    def encode(self, text: str, *, add_special: bool) -> list[int]:
        """Return the token ids of a text; special markup inside it is recognised.

        Args:
            text: the text.
            add_special: add what the model's tokenizer puts around a text, in practice the token
                that begins it. Rendered chat prompts contain it already.

        Raises:
            RequestError: the text is not Unicode, or holds what the vocabulary cannot spell.
        """
        try:
            text.encode()
        except UnicodeEncodeError:
            raise RequestError("prompt", "must be valid Unicode text (UTF-8)") from None
        try:
            ids: list[int] = self._backend.encode(text, add_special_tokens=add_special).ids
        except Exception as error:  # the library raises plain Exception
            detail = one_line(error)
            raise RequestError("prompt", f"{self.source} cannot encode it: {detail}") from None
        return ids

    def encode_chat(
        self, messages: Sequence[Mapping[str, object]], **variables: object
    ) -> list[int]:
        """Return the token ids of a conversation rendered through the chat template.

        Args:
            messages: as ``checked_messages`` takes them: content may be a list of text parts.
            variables: further variables of the template, such as ``tools``.

        Raises:
            RequestError: there is no template, a message is not one, or the template refuses it.
        """
        return self.encode(self.render_chat(messages, **variables), add_special=False)

    def render_chat(self, messages: Sequence[Mapping[str, object]], **variables: object) -> str:
        """Return the prompt text of a conversation; the rest is as in ``encode_chat``."""
        if self._template is None:
            raise RequestError(
                "messages",
                f"{self.source} has no chat template, so it cannot answer conversations; it can "
                "complete raw text (LLM.generate, outrider generate --raw)",
            )
        return self._template.render(checked_messages(messages), **variables)

    @cached_property
    def vocab_size(self) -> int:
        """One more than the largest token id; ids below it need not all have a token."""
        return max(self._backend.get_vocab().values(), default=-1) + 1

    @property
    def has_template(self) -> bool:
        """Whether conversations can be rendered."""
        return self._special.chat_template is not None

    @cached_property
    def _template(self) -> ChatTemplate | None:
        if self._special.chat_template is None:
            return None
        return ChatTemplate(self._special.chat_template, self.source, self._special.named or {})

    def decode(self, ids: Sequence[int], *, skip_special: bool) -> str:
        """Return the text of token ids; bytes that are not UTF-8 become U+FFFD.

        Ids without a token (a model's vocabulary may be padded) add nothing. Added tokens are their
        text. It is the text that the tokens give one by one; see ``pieces``.
        """
        skipped = self.special_ids if skip_special else frozenset()
        decoder = self.decoder()
        pieces = [self.feed(decoder, token) for token in ids if token not in skipped]
        return "".join(pieces) + decoder.open()

    def token_text(self, token_id: int, after: Sequence[int] = ()) -> str:
        """Return the text of one token; U+FFFD for parts of a character.

        Args:
            token_id: the token.
            after: tokens before it. At the beginning of a text some decoders leave out a space.
        """
        decoder = self.decoder()
        for token in after:
            if decoder.primed:
                break
            self.feed(decoder, token)
        return self.feed(decoder, token_id) + decoder.open()

    def token(self, token_id: int) -> str | None:
        """Return the token as the vocabulary spells it; None if there is none."""
        spelled: str | None = self._backend.id_to_token(token_id)
        return self._twins.get(token_id) if spelled is None else spelled

    def decoder(self) -> PieceDecoder:
        """Return a decoder of one text, for ``feed``."""
        return self._make_decoder()

    def feed(self, decoder: PieceDecoder, token_id: int) -> str:
        """Give a decoder its next token and return the text that is now certain."""
        added = self._added.get(token_id)
        if added is not None:
            return decoder.push_added(added)
        token = self.token(token_id)
        return "" if token is None else decoder.push(token)


def _is_spelling(backend: tokenizers.Tokenizer, token_id: int, content: str) -> bool:
    """Whether an added token is read like the model's pieces after all.

    Some vocabularies list a few of the model's own pieces among the added tokens: single letters,
    byte tokens, runs of spaces (Gemma's U+2581). Ordinary text is cut into them, so they must come
    back as what they spell there.
    """
    spells = len(content) == 1 or BYTE_TOKEN.fullmatch(content) or not content.strip(SPACE_MARKER)
    return bool(spells) and backend.model.token_to_id(content) == token_id
