"""Token ids and text: loading, chat templates, comparison of two vocabularies, streaming text.

Reads `tokenizer.json` and `tokenizer_config.json` with the `tokenizers` library and renders chat
templates with Jinja2 the way transformers does, without importing transformers (seconds, and code
from a model folder never runs).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Any

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer as _Tokenizer

from node.inference.architecture import ModelError, read_json
from settlement.hashing import ZERO32, keccak256, uint

_MAX_TEMPLATE = 1 << 17  # characters
_MAX_TOKENIZER = 1 << 26  # bytes of tokenizer.json


class TokenizerError(ModelError):
    """A tokenizer's files are missing or use something that has no exact text per token."""


class TokenizerMismatch(ModelError):
    """A draft model's ids do not mean the same text as the target's.

    Attributes:
        token_id: the first id that differs, or None when the difference is elsewhere.
    """

    def __init__(self, reason: str, token_id: int | None = None) -> None:
        super().__init__(f"draft and target tokenizers do not fit: {reason}")
        self.token_id = token_id


class Tokenizer:
    """The tokenizer of one model folder."""

    def __init__(self, inner: _Tokenizer, config: dict[str, Any], template: str | None) -> None:
        self._inner = inner
        # Whether control tokens are recognised is a switch on the tokenizer, not an argument.
        self._switch = threading.Lock()
        self._config = config
        self.chat_template = template
        self._decoder = _token_decoder(json.loads(inner.to_str())["decoder"])
        self._shown: dict[int, bytes] = {}

    @classmethod
    def load(cls, folder: str | Path) -> Tokenizer:
        """TokenizerError when tokenizer.json is missing, malformed or of an unsupported kind."""
        folder = Path(folder)
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise TokenizerError(f"{path} is missing: convert the tokenizer to tokenizer.json")
        if path.stat().st_size > _MAX_TOKENIZER:
            raise TokenizerError(f"{path} has {path.stat().st_size} bytes: over {_MAX_TOKENIZER}")
        try:
            inner = _Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception
            raise TokenizerError(f"{path} is not a tokenizer: {error}") from None
        config_path = folder / "tokenizer_config.json"
        config = read_json(config_path) if config_path.exists() else {}
        return cls(inner, config, _read_template(folder, config))

    @property
    def size(self) -> int:
        """Ids with a text: 0 to size - 1. A model's vocabulary may be padded beyond it."""
        return self._inner.get_vocab_size(with_added_tokens=True)

    def encode(self, text: str) -> list[int]:
        """Ids of `text` as it stands: special tokens written in it are *not* recognised.

        For what a user typed. A user who writes a control token gets its letters, not its power.
        """
        return self._encode(text, control_tokens=False)

    def encode_template(self, text: str) -> list[int]:
        """Ids of a rendered template, whose control tokens are meant."""
        return self._encode(text, control_tokens=True)

    def _encode(self, text: str, *, control_tokens: bool) -> list[int]:
        with self._switch:
            self._inner.encode_special_tokens = not control_tokens
            return self._inner.encode(text, add_special_tokens=False).ids

    def chat(self, messages: Sequence[dict[str, str]], now: datetime | None = None) -> list[int]:
        """Prompt ids of a conversation ending with the cue for the assistant's turn.

        As in transformers, a control token written inside a message acts as one: filter the
        messages of people you do not trust.

        Args:
            messages: dicts with "role" and "content".
            now: what a template that asks for the date gets; the epoch by default, so that a
                prompt does not depend on the day.

        Raises:
            TokenizerError: there is no template, or it fails on these messages.
        """
        return self.encode_template(self.render(messages, now))

    def render(self, messages: Sequence[dict[str, str]], now: datetime | None = None) -> str:
        if self.chat_template is None:
            raise TokenizerError("this model has no chat template: give plain text instead")
        special = {
            name: value["content"] if isinstance(value, dict) else value
            for name, value in self._config.items()
            if name.endswith("_token") and isinstance(value, str | dict)
        }
        try:
            return (
                _environment(now or datetime.fromtimestamp(0, UTC))
                .from_string(self.chat_template)
                .render(messages=list(messages), add_generation_prompt=True, tools=None, **special)
            )
        except Exception as error:  # the template is a program: it can fail in any way
            reason = str(error) or type(error).__name__
            raise TokenizerError(f"the chat template fails: {reason}") from None

    @cached_property
    def opening(self) -> tuple[int, ...]:
        """What the chat template puts before the first words of every conversation that brings no
        system message of its own; empty without a template."""
        try:
            one, other = (self.chat([{"role": "user", "content": word}]) for word in ("a", "1"))
        except TokenizerError:
            return ()
        same = zip(one, other, strict=False)
        return tuple(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], same))

    @cached_property
    def template_hash(self) -> bytes:
        """keccak256 of the template's UTF-8; 32 zero bytes when there is none."""
        return keccak256(self.chat_template.encode()) if self.chat_template else ZERO32

    @cached_property
    def vocabulary(self) -> tuple[bytes, ...]:
        """The text of every id: UTF-8 bytes, possibly part of a character; control tokens too."""
        return tuple(map(self._text, range(self.size)))

    def _text(self, token_id: int) -> bytes:
        if (added := self._added.get(token_id)) is not None:
            return added.content.encode()
        token = self._inner.id_to_token(token_id)
        return b"" if token is None else self._decoder(token)

    @cached_property
    def _added(self) -> dict[int, Any]:
        """Tokens beside the vocabulary proper, by id."""
        return dict(self._inner.get_added_tokens_decoder())

    @cached_property
    def control_ids(self) -> frozenset[int]:
        """Ids of tokens marked special: they steer the model and print nothing."""
        return frozenset(i for i, token in self._added.items() if token.special)

    @cached_property
    def vocabulary_hash(self) -> bytes:
        """keccak256 over every id's control flag, length and text: what the manifest names."""
        return keccak256(
            *(
                bytes([i in self.control_ids]) + uint(len(text), 4) + text
                for i, text in enumerate(self.vocabulary)
            )
        )

    def token_bytes(self, token_id: int) -> bytes:
        """What one token adds to the text shown: empty for control and padding ids."""
        # One by one: the whole vocabulary takes a tenth of a second, in a client's first answer.
        if (known := self._shown.get(token_id)) is None:
            if not 0 <= token_id < self.size:
                return b""
            hidden = token_id in self.control_ids
            known = self._shown[token_id] = b"" if hidden else self._text(token_id)
        return known

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of a whole output; bytes that are no UTF-8 become U+FFFD."""
        return b"".join(map(self.token_bytes, token_ids)).decode(errors="replace")


class TextStream:
    """Text of an output as it grows: every piece is whole characters, the pieces concatenate.

    Text that may turn out to begin a stop string is held back until it is clear.
    """

    def __init__(self, token_bytes: Callable[[int], bytes], stops: Sequence[str] = ()) -> None:
        self._token_bytes = token_bytes
        self._stops = [text.encode() for text in stops]
        self._pending = b""
        self._ended = False

    def push(self, token_ids: Sequence[int]) -> str:
        """The text that these tokens complete. After a stop string: nothing more, ever."""
        for token_id in token_ids:
            if self._ended:
                return ""
            self._pending += self._token_bytes(token_id)
            found = [at for stop in self._stops if (at := self._pending.find(stop)) >= 0]
            if found:
                self._pending = self._pending[: min(found)]
                self._ended = True
                return self._take(len(self._pending), final=True)
        if self._ended:
            return ""
        return self._take(len(self._pending) - self._held_for_stops())

    def finish(self) -> str:
        """What was held back, when the output ends without completing it."""
        ended, self._ended = self._ended, True
        return "" if ended else self._take(len(self._pending), final=True)

    def _held_for_stops(self) -> int:
        """Length of the longest end of the pending bytes that begins a stop string."""
        longest = 0
        for stop in self._stops:
            for size in range(min(len(stop) - 1, len(self._pending)), longest, -1):
                if self._pending.endswith(stop[:size]):
                    longest = size
                    break
        return longest

    def _take(self, size: int, *, final: bool = False) -> str:
        head = self._pending[:size]
        if not final:
            head = head[: len(head) - incomplete_suffix(head)]
        self._pending = self._pending[len(head) :]
        return head.decode(errors="replace")


def incomplete_suffix(data: bytes) -> int:
    """Bytes at the end that begin a UTF-8 character without completing it: 0 to 3."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        need = 4 if byte & 0xF8 == 0xF0 else 3 if byte & 0xF0 == 0xE0 else 2
        return back if byte & 0xC0 == 0xC0 and byte < 0xF8 and back < need else 0
    return 0


def require_same_tokens(draft: Tokenizer, target: Tokenizer, draft_rows: int) -> None:
    """Check that every id means the same text to a draft model and to its target.

    Ids are compared by text, not by name or count: vocabularies of one family are padded to
    different sizes (151,936 and 152,064 rows), and re-ordered ones can have equal sizes.

    Args:
        draft_rows: of the draft model's embedding; it must be able to read whatever is emitted.

    Raises:
        TokenizerMismatch: with the first id that differs.
    """
    for token_id, (ours, theirs) in enumerate(
        zip(draft.vocabulary, target.vocabulary, strict=False)
    ):
        if ours != theirs:
            raise TokenizerMismatch(
                f"id {token_id} is {ours!r} to the draft and {theirs!r} to the target", token_id
            )
        if (token_id in draft.control_ids) != (token_id in target.control_ids):
            raise TokenizerMismatch(f"id {token_id} ({ours!r}) is a control token to one", token_id)
    if draft.size != target.size:
        raise TokenizerMismatch(
            f"{draft.size} tokens to the draft, {target.size} to the target",
            min(draft.size, target.size),
        )
    if draft_rows < target.size:
        raise TokenizerMismatch(
            f"the draft model's embedding has {draft_rows} rows for {target.size} tokens",
            draft_rows,
        )


def _read_template(folder: Path, config: dict[str, Any]) -> str | None:
    path = folder / "chat_template.jinja"
    template = path.read_text(encoding="utf-8") if path.is_file() else config.get("chat_template")
    if isinstance(template, list):  # several named ones
        named = {t.get("name"): t.get("template") for t in template if isinstance(t, dict)}
        template = named.get("default")
    if template is None:
        return None
    if not isinstance(template, str) or len(template) > _MAX_TEMPLATE:
        raise TokenizerError(f"{folder}: chat_template is not a text under {_MAX_TEMPLATE} letters")
    return template


def _environment(now: datetime) -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
    )

    def refuse(message: str) -> None:
        raise jinja2.TemplateError(message)

    def tojson(value: Any, indent: int | None = None, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=False, indent=indent, **options)

    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = now.strftime
    return environment


def _token_decoder(decoder: dict[str, Any] | None) -> Callable[[str], bytes]:
    """How a token's name in tokenizer.json becomes bytes.

    Raises:
        TokenizerError: a decoder whose text is not the concatenation of its tokens' bytes.
    """
    parts = _flatten(decoder)
    kinds = {part.get("type") for part in parts}
    if kinds == {"ByteLevel"}:
        table = _byte_level_table()
        return lambda token: (
            bytes(table[c] for c in token) if set(token) <= table.keys() else (token.encode())
        )
    space = "\u2581"
    if kinds <= {"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"} and (
        "ByteFallback" in kinds or "Metaspace" in kinds
    ):
        # SentencePiece: U+2581 is a space, <0xAB> a byte. Strip only trims the text's first space.
        def sentence_piece(token: str) -> bytes:
            if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
                return bytes([int(token[3:5], 16)])
            return token.replace(space, " ").encode()

        return sentence_piece
    raise TokenizerError(
        f"decoder {sorted(map(str, kinds))}: only byte-level BPE and SentencePiece have an exact "
        f"text per token"
    )


def _flatten(decoder: dict[str, Any] | None) -> list[dict[str, Any]]:
    if decoder is None:
        return []
    if decoder.get("type") == "Sequence":
        return [part for inner in decoder["decoders"] for part in _flatten(inner)]
    return [decoder]


def _byte_level_table() -> dict[str, int]:
    """GPT-2's letters for bytes: printable Latin-1 for itself, the rest from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(b): b for b in printable}
    rest = [b for b in range(256) if b not in set(printable)]
    return table | {chr(0x100 + i): b for i, b in enumerate(rest)}


def final_text(tokenizer: Tokenizer, tokens: Sequence[int], stops: Sequence[str]) -> str:
    """The text of a whole output, cut before the stop string that ended it."""
    stream = TextStream(tokenizer.token_bytes, stops)
    return stream.push(tokens) + stream.finish()
