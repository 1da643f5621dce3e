"""A model folder's tokenizer and chat template for plans: read without transformers, which would bring torch.

It does what `conversations.Encoder` and `text_blocks` ask of a tokenizer, with the names of transformers. What a trial
trains and measures is tokenised by transformers itself.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Encoding, Tokenizer

from trainables.common.errors import InputError, first_line
from trainables.storage import atomic_files


class GenerationTag(jinja2.ext.Extension):
    """Takes `{% generation %}`, which marks an assistant's words, and writes what is in it."""

    def __init__(self, environment: Any) -> None:
        super().__init__(environment)
        self.tags = {"generation"}

    def parse(self, parser: Any) -> Any:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@dataclass(frozen=True)
class Encoded:
    """What a tokenizer returns: `encodings`, and ids under `input_ids`, of one text or of many."""

    encodings: list[Encoding]
    single: bool

    def __getitem__(self, name: str) -> Any:
        ids = [encoding.ids for encoding in self.encodings]
        return ids[0] if self.single else ids


class FolderTokenizer:
    """Reads tokenizer.json, tokenizer_config.json and the chat template. Raises InputError if they cannot be read."""

    def __init__(self, folder: Path) -> None:
        try:
            self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:
            raise InputError(f"tokenizer: {folder / 'tokenizer.json'} cannot be read: {first_line(error)}") from error
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.folder = folder
        self.settings: dict[str, Any] = atomic_files.read_json(folder / "tokenizer_config.json") or {}
        named = atomic_files.read_json(folder / "special_tokens_map.json") or {}
        self.settings |= {name: value for name, value in named.items() if value is not None}

    def __call__(self, texts: str | list[str], add_special_tokens: bool = True, **_: Any) -> Encoded:
        """Return the ids and offsets of texts."""
        several = [texts] if isinstance(texts, str) else texts
        encodings = self.tokenizer.encode_batch(several, add_special_tokens=add_special_tokens)
        return Encoded(encodings, isinstance(texts, str))

    def special(self, name: str) -> str | None:
        """Return the text of a special token such as `eos_token`."""
        value = self.settings.get(name)
        return value.get("content") if isinstance(value, dict) else value

    def token_id(self, name: str) -> int | None:
        """Return the id of a special token such as `eos_token`."""
        text = self.special(name)
        if text is None:  # the tokenizer's class may know it: then the model's configuration does, too
            return (atomic_files.read_json(self.folder / "config.json") or {}).get(f"{name}_id")
        listed = self.settings.get("added_tokens_decoder") or {}
        added = {token.get("content"): int(number) for number, token in listed.items()}
        found = self.tokenizer.token_to_id(text)
        return added.get(text) if found is None else found

    @property
    def name_or_path(self) -> str:
        return str(self.folder)

    @property
    def bos_token(self) -> str | None:
        return self.special("bos_token")

    @property
    def bos_token_id(self) -> int | None:
        return self.token_id("bos_token")

    @property
    def eos_token_id(self) -> int | None:
        return self.token_id("eos_token")

    @cached_property
    def added_tokens_decoder(self) -> dict[int, Any]:
        """Return the tokens that were added to the vocabulary, by id."""
        return self.tokenizer.get_added_tokens_decoder()

    @cached_property
    def vocabulary(self) -> dict[str, int]:
        """Return the id of every token."""
        return self.tokenizer.get_vocab()

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [str(self.tokenizer.id_to_token(token)) for token in ids]

    @cached_property
    def chat_template(self) -> str | None:
        """Return the template of the folder's file or settings, of several the one called `default`."""
        file = self.folder / "chat_template.jinja"
        if file.is_file():
            return file.read_text(encoding="utf-8")
        found = self.settings.get("chat_template")
        if isinstance(found, list):
            found = {one["name"]: one["template"] for one in found}.get("default")
        return found

    def apply_chat_template(
        self, turns: list[dict[str, str]], *, chat_template: str, tokenize: bool, **values: Any
    ) -> str:
        """Return the turns as text, as transformers renders them."""
        special = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")
        named = {name: text for name in special if (text := self.special(name)) is not None}
        given = {"messages": turns, "tools": None, "documents": None} | named | values
        return _environment().from_string(chat_template).render(**given)


def _environment() -> ImmutableSandboxedEnvironment:
    """Return the environment of transformers' chat templates, without its clock (conversations.CLOCK has one)."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, jinja2.ext.loopcontrols]
    )

    def raise_exception(message: str) -> None:
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value: Any, ensure_ascii: bool = False, **settings: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **settings)

    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    return environment
