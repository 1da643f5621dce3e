"""Running text as training rows: every token but the first of a row is a label."""

from collections.abc import Sequence
from typing import Any

from trainables.common.errors import InputError
from trainables.common.tokenized_row import Example
from trainables.data.conversations import count_added_special_tokens


def pack_texts_into_blocks(tokenizer: Any, texts: Sequence[str], length: int) -> list[Example]:
    """Return MUSE's rows: one stream in blocks of `length` with a start token each; the first fills the last."""
    stream, start = _stream(tokenizer, texts), [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
    size = length - len(start)
    rows = [stream[k : k + size] for k in range(0, len(stream), size)]
    while len(rows[-1]) < size:
        rows[-1] += stream[: size - len(rows[-1])]
    return [Example((*start, *row), 1) for row in rows]


def make_retokenized_blocks(tokenizer: Any, texts: Sequence[str], length: int) -> list[Example]:
    """Return open-unlearning's rows: blocks of `length` tokens, each turned into text and tokenised again.

    What then exceeds `length` (and the start token) is dropped. The last block is shorter.
    """
    stream = _stream(tokenizer, texts)
    blocks = [tokenizer.decode(stream[k : k + length]) for k in range(0, len(stream), length)]
    limit = length + len(tokenize_text(tokenizer, ""))
    rows = [tokenize_text(tokenizer, block)[:limit] for block in blocks]
    return [Example(tuple(row), 1) for row in rows if len(row) > 1]


def split_text_into_blocks(tokenizer: Any, text: str, length: int, where: str) -> list[Example]:
    """Return one text in consecutive blocks of at most `length` tokens: every token is a label once.

    Each begins with the start token, if there is one, else with the last token of the block before. Raises InputError.
    """
    ids, start = tokenize_text(tokenizer, text), tokenize_text(tokenizer, "")
    if len(ids) < 2:
        raise InputError(f"{where} is a text of a single token: nothing can be predicted of it")
    stream = ids[len(start) :]
    if not start:
        return [Example(tuple(stream[k : k + length]), 1) for k in range(0, len(stream) - 1, length - 1)]
    size = length - len(start)
    return [Example((*start, *stream[k : k + size]), len(start)) for k in range(0, len(stream), size)]


class LazyTextRows(Sequence[Example]):
    """One row a text, its first `length` tokens, made when it is asked for: a step sees few of many long texts."""

    def __init__(self, tokenizer: Any, texts: Sequence[str], length: int) -> None:
        self.tokenizer = tokenizer
        self.texts = texts
        self.length = length

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, number: Any) -> Any:
        """Return an example. Raises InputError where a text is a single token."""
        row = tokenize_text(self.tokenizer, self.texts[int(number)])[: self.length]
        if len(row) < 2:
            raise InputError(f"benchmark.data: text {number + 1} has a single token: nothing can be predicted of it")
        return Example(tuple(row), 1)


def tokenize_text(tokenizer: Any, text: str) -> list[int]:
    """Return the ids of a text that a model reads: one start token if it has or gets one, and no end token.

    A text that was rendered with start and end tokens at its edges loses them.
    """
    eos = tokenizer.eos_token_id
    if eos is not None and text.rstrip().endswith(tokenizer.convert_ids_to_tokens([eos])[0]):
        text = text.rstrip()
    if tokenizer.bos_token and text.lstrip().startswith(tokenizer.bos_token):
        text = text.lstrip()
    start = tokenizer(text, verbose=False)["input_ids"][: count_added_special_tokens(tokenizer)[0]]
    ids = list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
    while ids and ids[-1] == tokenizer.eos_token_id:
        ids.pop()
    while ids[:1] == [tokenizer.bos_token_id]:
        start = start or ids[:1]
        del ids[0]
    return [*start, *ids]


def _stream(tokenizer: Any, texts: Sequence[str]) -> list[int]:
    stream = list(tokenizer("\n\n".join(texts), add_special_tokens=False, verbose=False)["input_ids"])
    if len(stream) < 2:
        raise InputError("benchmark.data: the texts have fewer than two tokens")
    return stream
