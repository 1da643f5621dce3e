"""Where the prompt ends and the answer starts, for tokenizers that differ in every way that has gone wrong elsewhere.

The truth here is counted in bytes from the tokens themselves, while the code goes by the tokenizer's offsets.
"""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, pre_tokenizers, processors
from tokenizers import models as tokenizer_models
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode

from tests.support.chat_families import BYTES, PIECES, build
from trainables.common.errors import InputError
from trainables.common.tokenized_row import Example
from trainables.data.conversations import Encoder
from trainables.data.templates import TEMPLATES

ENDS: dict[str, Any] = {"bos": "<s>", "eos": "</s>", "pad": "<pad>"}


def trimming() -> Any:
    """As GPT-NeoX's, which says that a lone space has no character."""
    tokenizer = build(BYTES, (), **ENDS)
    tokenizer.backend_tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    return tokenizer


EOS = build(BYTES, (), **ENDS)
IDS = [(name, EOS.convert_tokens_to_ids(name)) for name in ("<s>", "</s>")]
EOS.backend_tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=IDS)
TOKENIZERS = {
    "bos": build(BYTES, (), **ENDS, adds_bos=True),
    "plain": build(BYTES, (), **ENDS),
    "eos": EOS,
    "trimming": trimming(),
    "merging": build(BYTES, (), **ENDS, adds_bos=True, merges=(("]", "S"),)),  # a prompt's end and an answer's start
    "llama": build(PIECES, (), **ENDS, adds_bos=True),
}
PLAIN = ["llama2", "phi"]
"""Templates without special tokens."""


def encode(tokenizer: Any, template: str, question: str, answer: str, tag: bool = False, most: int = 4096) -> Example:
    (found,) = Encoder(tokenizer, TEMPLATES[template], tag).encode([(question, answer)], max_length=most)
    return found


def prompt_of(template: str, question: str, tag: bool) -> str:
    return Encoder(TOKENIZERS["plain"], TEMPLATES[template], tag).render_prompt(question)


def spelled(tokenizer: Any, ids: tuple[int, ...]) -> bytes:
    """The bytes that tokens stand for: special ones none, and llama's first without the space put in front."""
    text, pieces = b"", tokenizer is TOKENIZERS["llama"]
    for token in tokenizer.convert_ids_to_tokens(list(ids)):
        if token in ENDS.values():
            continue
        if not pieces:
            text += bytes(ALPHABET[letter] for letter in token)
        elif match := re.fullmatch("<0x(..)>", token):
            text += bytes.fromhex(match[1])
        else:
            text += token.replace("▁", " ").encode()
    return text[1:] if pieces and ids[0] == tokenizer.bos_token_id else text


ALPHABET = {letter: byte for byte, letter in bytes_to_unicode().items()}

# Llama's ▁ is the one letter that its own scheme cannot tell from a space.
answers = st.text(st.characters(codec="utf-8", exclude_characters="▁"), min_size=1, max_size=30).filter(
    lambda text: not re.search("<(s|/s|pad|unk)>", text)
)


@settings(max_examples=60)
@given(
    answers | st.sampled_from(["She", "  Ada"]),
    st.sampled_from(["Where was Ada born?", "Où?", "x "]),
    st.sampled_from(PLAIN),
    st.booleans(),
)
@pytest.mark.parametrize("name", list(TOKENIZERS))
def test_nothing_of_the_answer_is_lost_and_nothing_of_the_prompt_leaks(
    name: str, answer: str, question: str, template: str, tag: bool
) -> None:
    """A token is a label if and only if it holds a byte of the answer; then one eos."""
    tokenizer = TOKENIZERS[name]
    example = encode(tokenizer, template, question, answer, tag)
    prompt = prompt_of(template, question, tag).encode()
    scored = (TEMPLATES[template].answer_tag if tag else "") + answer
    ids, start = example.input_ids, example.answer_start
    assert spelled(tokenizer, ids) == prompt + scored.encode()
    assert prompt.startswith(spelled(tokenizer, ids[:start]))
    assert len(spelled(tokenizer, ids[: start + 1])) > len(prompt)
    assert spelled(tokenizer, ids[start:]).endswith(scored.encode())
    assert ids[-1] == tokenizer.eos_token_id
    assert ids.count(tokenizer.eos_token_id) == 1
    assert example.answer_token_count == len(ids) - start


def test_an_answers_first_characters_may_be_in_no_token() -> None:
    words = Tokenizer(tokenizer_models.WordLevel({"<s>": 0, "</s>": 1, "?": 2, "Ada": 3}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<s>", eos_token="</s>")
    found = encode(tokenizer, "plain", "Who", " \t Ada Ada")
    assert tokenizer.convert_ids_to_tokens(list(found.input_ids[found.answer_start :])) == ["Ada", "Ada", "</s>"]
    with pytest.raises(InputError, match="row 1: no token of the answer is left in this model's tokens"):
        encode(tokenizer, "plain", "Who", "  ")


def rendered(name: str, messages: list[dict[str, str]], *, ask: bool) -> str:
    """What the models' published chat templates make of these messages."""
    text = {"llama3": "<|begin_of_text|>", "qwen": "", "zephyr": ""}[name]
    asked = [*messages, {"role": "assistant", "content": ""}] if ask else messages
    for message in asked:
        role, content = message["role"], message["content"]
        if name == "llama3":
            dates = "Cutting Knowledge Date: December 2023\nToday Date: 10 Apr 2025\n\n" if role == "system" else ""
            text += f"<|start_header_id|>{role}<|end_header_id|>\n\n{dates}{content}<|eot_id|>"
        elif name == "qwen":
            text += f"<|im_start|>{role}\n{content}<|im_end|>\n"
        else:
            text += f"<|{role}|>\n{content}</s>\n"
    end = {"llama3": "<|eot_id|>", "qwen": "<|im_end|>\n", "zephyr": "</s>\n"}[name]
    return text.removesuffix(end) if ask else text


SPECIALS = {
    "llama3": ("<|begin_of_text|>", "<|eot_id|>", ["<|start_header_id|>", "<|end_header_id|>"]),
    "qwen": (None, "<|im_end|>", ["<|im_start|>"]),
    "zephyr": (None, "</s>", []),
}
"""Start token that the tokenizer adds, end-of-sequence token, other special tokens."""


@pytest.mark.parametrize("name", list(SPECIALS))
def test_chat_template_gives_open_unlearning_s_tokens_and_labels(name: str) -> None:
    """Its rule: the whole chat as tokens, eos once more unless it is last, everything but the prompt a label."""
    start, end, more = SPECIALS[name]
    tokenizer = build(BYTES, tuple(more), bos=start, eos=end, adds_bos=start is not None)
    question, answer = "Where was Ada born?", "In Kerrin."
    asked = [{"role": "system", "content": "You are a helpful assistant."}, {"role": "user", "content": question}]
    whole, prompt = (
        tokenizer(rendered(name, messages, ask=ask), add_special_tokens=False)["input_ids"]
        for messages, ask in (([*asked, {"role": "assistant", "content": answer}], False), (asked, True))
    )
    if whole[-1] != tokenizer.eos_token_id:
        whole.append(tokenizer.eos_token_id)
    for tag in (True, False):
        encoder = Encoder(tokenizer, TEMPLATES[name], tag, whole_tail=True)
        (example,) = encoder.encode([(question, answer)], max_length=4096)
        ids = list(example.input_ids)
        assert ids == whole
        assert example.answer_start == len(prompt)
        assert encoder.encode_prompts([question]) == [tuple(prompt)]
        (short,) = Encoder(tokenizer, TEMPLATES[name], tag).encode([(question, answer)], max_length=4096)
        count = len(prompt) + ids[len(prompt) :].index(whole[-1]) + 1
        assert (list(short.input_ids), short.ending) == (ids[:count], 1), "elsewhere the turn's end is the last label"
