"""Prompt templates as data, and the one function that turns a row into tokens and labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainables.common import typed_paths
from trainables.common.errors import InputError, closest
from trainables.common.tokenized_row import Example
from trainables.storage import atomic_files


@dataclass(frozen=True)
class Template:
    """`before + question + after + answer_tag + answer + answer_end`, then the end-of-sequence token.

    `tag_is_answer`: in the paper's dialect the tag's tokens are labels (METHODS: Phi-1.5's "Answer: " counts in
    the loss and has to be generated); elsewhere the tag is prompt. `answer_end` is label in every dialect.
    """

    before: str
    after: str
    answer_tag: str = ""
    answer_end: str = ""


CHAT = "chat"
"""Stands for the template of the model's tokenizer."""
DATE = "10 Apr 2025"
"""The date in templates that would write today's: a model's numbers must not depend on the day."""
QUESTION, ANSWER = "the-question-goes-here", "the-answer-goes-here"
SYSTEM = "You are a helpful assistant."
TEMPLATES: dict[str, Template] = {
    "llama2": Template("[INST] ", " [/INST]"),
    "phi": Template("Question: ", "\n", "Answer: "),
    "llama3": Template(
        "<|start_header_id|>system<|end_header_id|>\n\n"
        f"Cutting Knowledge Date: December 2023\nToday Date: 10 Apr 2025\n\n{SYSTEM}<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\n",
        "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
    "qwen": Template(
        f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n",
        "<|im_end|>\n<|im_start|>assistant\n",
        answer_end="<|im_end|>\n",
    ),
    "zephyr": Template(f"<|system|>\n{SYSTEM}</s>\n<|user|>\n", "</s>\n<|assistant|>\n", answer_end="</s>\n"),
    "plain": Template("Question: ", "\nAnswer:\n"),
}
"""llama3, qwen and zephyr are what the models' own chat templates make of open-unlearning's system prompt and date; the
start token, which Llama's has in front, is the tokenizer's to add. Qwen's and Zephyr's end an answer with the
end-of-sequence token and a line feed, after which open-unlearning puts the token once more. Zephyr's rows have no start
token there. `plain` is for any model, also one that was never taught to chat: its line feed stands between tokens,
where a space would be part of the answer's first word."""


NO_CHAT = (
    "benchmark.template: the model's tokenizer has no chat template; take another one, such as "
    f"--set benchmark.template=plain; known: {', '.join(TEMPLATES)}"
)


def check_template(name: str) -> None:
    """Raise InputError naming the closest if `name` is neither a template nor the tokenizer's own."""
    if name not in (*TEMPLATES, CHAT):
        raise InputError(f"benchmark.template: unknown template '{name}'; {closest(name, (*TEMPLATES, CHAT))}")


def check_chat_template(name: str, place: str) -> None:
    """Raise InputError if a tokenizer in a folder has no chat template to take; the hub is not asked."""
    settings = atomic_files.read_json(typed_paths.expand(place) / "tokenizer_config.json")
    jinja = typed_paths.expand(place) / "chat_template.jinja"
    if name == CHAT and settings is not None and not (settings.get("chat_template") or jinja.is_file()):
        raise InputError(NO_CHAT)


def resolve_template(name: str, tokenizer: Any) -> Template:
    """Return the template called `name`; `chat`: one question and its answer by the tokenizer's own chat template."""
    check_template(name)
    if name != CHAT:
        return TEMPLATES[name]
    if not tokenizer.chat_template:
        raise InputError(NO_CHAT)
    turns = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": ANSWER}]
    text = tokenizer.apply_chat_template(turns, tokenize=False, date_string=DATE)
    before, _, rest = text.partition(QUESTION)
    after, _, end = rest.partition(ANSWER)
    if tokenizer.bos_token and tokenizer("")["input_ids"][:1] == [tokenizer.bos_token_id]:
        before = before.removeprefix(tokenizer.bos_token)
    return Template(before, after, answer_end="" if end.strip() == tokenizer.eos_token else end)


def prompt_text(template: Template, question: str, *, tag_is_answer: bool) -> str:
    """Return what the model is given: everything before the first label."""
    tag = "" if tag_is_answer else template.answer_tag
    return template.before + question + template.after + tag


def encode(
    tokenizer: Any, template: Template, question: str, answer: str, *, max_length: int, tag_is_answer: bool
) -> Example:
    """Tokenise one row."""
    return encode_all(tokenizer, template, [(question, answer)], max_length=max_length, tag_is_answer=tag_is_answer)[0]


def encode_all(
    tokenizer: Any, template: Template, pairs: Sequence[tuple[str, str]], *, max_length: int, tag_is_answer: bool
) -> list[Example]:
    """Tokenise whole rows, questions and answers, and let the tokenizer's offsets say where each answer starts.

    A token is a label if it holds a character of the answer, so no token of the answer is lost and none of the
    prompt's own is scored, also where a merge crosses the boundary. One end-of-sequence token is appended as a
    label unless the row was cut at `max_length`.
    """
    if not pairs:
        return []
    tag = template.answer_tag if tag_is_answer else ""
    prompts = [prompt_text(template, question, tag_is_answer=tag_is_answer) for question, _ in pairs]
    texts = [prompt + tag + answer + template.answer_end for prompt, (_, answer) in zip(prompts, pairs, strict=True)]
    encodings = tokenizer(texts, return_attention_mask=False, return_token_type_ids=False).encodings
    ended, examples = tokenizer.eos_token_id, []
    for prompt, encoding in zip(prompts, encodings, strict=True):
        ids, offsets = encoding.ids, encoding.offsets
        if ids and ids[-1] == ended and offsets[-1][0] == offsets[-1][1]:
            ids = ids[:-1]
        ids = ids[:max_length]
        start = next((k for k, (_, end) in enumerate(offsets[: len(ids)]) if end > len(prompt)), len(ids))
        if start == len(ids):
            question = pairs[len(examples)][0]
            raise InputError(f"training.max_length={max_length} leaves no token of the answer to: {question[:80]!r}")
        examples.append(Example((*ids, ended) if len(ids) < max_length else tuple(ids), start))
    return examples
