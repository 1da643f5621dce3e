"""Conversations as tokens: the one place that says what of a question with its answer is prompt, answer and end.

By the template `chat`, prompt and conversation are what transformers' `apply_chat_template` gives; what comes after the
prompt is label. The other templates are text around a question, and the tokenizer adds its own start token.

The labels end with the first token that ends a turn: the tokenizer's end-of-sequence token, or the first special token
that the template puts behind an answer. Generation also stops at the ends of the model's `generation_config`.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from trainables.common import deadlines
from trainables.common.errors import InputError, first_error_line
from trainables.common.tokenized_row import Example
from trainables.data import templates
from trainables.data.templates import CHAT, SYSTEM_PROMPT, TEMPLATE_HINT, TEMPLATES, Template
from trainables.storage.atomic_files import read_json

Turns = tuple[tuple[str, str], ...]
"""Role and text of each turn before an answer; the last is the user's."""
Question = str | Turns
MAX_TEMPLATE_CHARACTERS = 1_000_000
"""Characters that a template may write around its turns."""
QUESTION_SLOT, ANSWER_SLOT = "the-question-goes-here", "the-answer-goes-here"


class RenderedConversation(NamedTuple):
    """A whole conversation, and the places in its text where the prompt ends, the answer begins and it stops."""

    text: str
    prompt: int
    answer: int
    stop: int


class AnswerLayout(NamedTuple):
    """What a template writes around an answer. `dropped`: characters of a prompt's end that a conversation lacks.

    `lead`: the text between prompt and answer. `tail`: the text behind an answer.
    """

    dropped: int
    lead: str
    tail: str


@dataclass(frozen=True)
class Encoder:
    """Turns questions with their answers into tokens by a template; make it by `make_encoder`.

    `template` None: the tokenizer's own. `tag_is_answer`: an answer tag is label, not prompt. `whole_tail`: all behind
    an answer is label, and one end-of-sequence token more (open-unlearning). `prefix`: text in front of an answer.
    """

    tokenizer: Any
    template: Template | None
    tag_is_answer: bool = False
    whole_tail: bool = False
    prefix: str = ""

    def render_prompt(self, question: Question) -> str:
        """Return the text that a model is given. Raises InputError where the template refuses the turns."""
        return self._render(question, None) + self.answer_beginning

    @cached_property
    def answer_beginning(self) -> str:
        """Return `prefix` behind what the template writes before an answer, which is not known of one that it drops."""
        return (self.layout.lead if self.prefix and not self.layout.dropped else "") + self.prefix

    def encode_prompts(self, questions: Sequence[Question]) -> list[tuple[int, ...]]:
        texts = map(self.render_prompt, map(self._strip_start, questions))
        if self.template is not None and not self.whole_tail and self.prompt_is_no_prefix:
            texts = (text.rstrip(" ") for text in texts)  # a space there belongs to an answer's first token
        return [tuple(ids) for ids, _ in self._tokenize(list(texts))]

    def encode(
        self, pairs: Sequence[tuple[Question, str]], *, max_length: int, names: Sequence[str] = ()
    ) -> list[Example]:
        """Return each question with its answer as tokens, the first `max_length` of them.

        Where the whole does not begin with the prompt's tokens, a token is a label if it holds a character of what
        follows the prompt. `names`: of the pairs, for messages; without them they are rows by number. Raises
        InputError, without a text of the rows, where the template loses a part or no token of an answer is left.
        """
        names = names or [f"row {number + 1}" for number in range(len(pairs))]
        prompts: dict[Question, str] = {}
        asked, wholes = [], []
        for name, (question, answer) in zip(names, pairs, strict=True):
            question, answer = self._strip_start(question), self.strip_end_tokens(answer)
            try:
                if question not in prompts:
                    prompts[question] = self.render_prompt(question)
                wholes.append(self._render_whole(question, answer, prompts[question]))
            except InputError as error:
                raise InputError(f"{name}: {error}") from error
            asked.append(question)
        given = dict(zip(prompts, self._tokenize(list(prompts.values())), strict=True))
        tokens = self._tokenize([whole.text for whole in wholes])
        found = []
        for name, question, whole, (ids, offsets) in zip(names, asked, wholes, tokens, strict=True):
            example = self._label(ids, offsets, given[question][0], whole)
            kept = example.keep_first_labels(max_length - example.answer_start)
            if kept.answer_token_count - kept.lead <= kept.ending:
                within = f"within {max_length} tokens (training.max_length, or the dialect's)"
                where = within if len(example.input_ids) > max_length else "in this model's tokens"
                raise InputError(f"{name}: no token of the answer is left {where}")
            found.append(kept)
        return found

    def _label(
        self, ids: list[int], offsets: list[tuple[int, int]], prompt: list[int], whole: RenderedConversation
    ) -> Example:
        """Return a whole conversation's ids with their labels; `prompt`: the ids that a model is given."""
        start, added = len(prompt), self.tokenizer.added_tokens_decoder  # which is made anew each time
        special = [token in added for token in ids]
        places = [(k, begin, end) for k, (begin, end) in enumerate(offsets)]  # special tokens may swallow spaces
        if ids[:start] != prompt:
            behind = (k for k, at, end in places if end > whole.prompt and not (at < whole.prompt and special[k]))
            start = next(behind, len(ids))
        after = (k for k, at, end in places[start:] if at >= whole.stop or (end > whole.stop and special[k]))
        stop = next(after, len(ids))
        lead = sum(end <= whole.answer for _, end in offsets[start:stop]) if whole.answer > whole.prompt else 0
        ending = self._end_turn(ids[stop:], ids)
        return Example((*ids[:stop], *ending), start, lead, len(ending))

    @cached_property
    def probe(self) -> Question:
        """Return a question to look at the template with: after a system turn, where it demands one."""
        for question in (QUESTION_SLOT, (("system", SYSTEM_PROMPT), ("user", QUESTION_SLOT))):
            with suppress(InputError):
                self._render(question, None)
                return question
        return QUESTION_SLOT

    @cached_property
    def layout(self) -> AnswerLayout:
        """Return what the template writes around an answer. Raises InputError if it loses or repeats a part."""
        prompt, whole = self._render(self.probe, None), self._render(self.probe, ANSWER_SLOT)
        counts = prompt.count(QUESTION_SLOT), whole.count(QUESTION_SLOT), whole.count(ANSWER_SLOT)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(prompt, whole, strict=False)))
        if counts != (1, 1, 1) or ANSWER_SLOT in prompt or same < prompt.index(QUESTION_SLOT) + len(QUESTION_SLOT):
            raise InputError(
                "benchmark.template: the model's chat template loses or repeats a question or its answer, or asks in "
                f"another way than it writes them; {TEMPLATE_HINT}"
            )
        at = whole.index(ANSWER_SLOT)
        same = min(same, at)
        return AnswerLayout(len(prompt) - same, whole[same:at], whole[at + len(ANSWER_SLOT) :])

    @cached_property
    def end_tokens(self) -> frozenset[int]:
        """Return the tokens that end an answer: of the sequence, of the template's turn, of the model's generation."""
        added = self.tokenizer.added_tokens_decoder
        tail = self.tokenizer([self.layout.tail], add_special_tokens=False).encodings[0].ids
        turn_end = next((one for one in tail if one in added and added[one].content.strip()), None)
        named = read_json(Path(self.tokenizer.name_or_path) / "generation_config.json") or {}
        configured = named.get("eos_token_id")
        configured = configured if isinstance(configured, list) else [configured]
        return frozenset({self.tokenizer.eos_token_id, turn_end, *configured} - {None})

    def strip_answer_tag(self, said: str) -> str:
        """Return what a model said without what its template writes before an answer."""
        if self.template is not None or not self.layout.lead.strip():
            return said
        ids = self.tokenizer([self.layout.lead], add_special_tokens=False).encodings[0].ids
        return said.removeprefix(self.tokenizer.decode(ids, skip_special_tokens=True))

    @cached_property
    def prompt_is_no_prefix(self) -> bool:
        """Return whether a whole conversation does not begin with the tokens that a model is given."""
        prompt = self.render_prompt(self.probe)
        (given, _), (ids, _) = self._tokenize([prompt, self._render_whole(self.probe, ANSWER_SLOT, prompt).text])
        return ids[: len(given)] != given

    def _render(self, question: Question, answer: str | None) -> str:
        """Return the whole conversation by the template; without an answer, the prompt. Raises InputError."""
        if self.template is None:
            return self._apply_chat_template(question, answer)
        turns = list_turns(question)
        if any(role == "assistant" for role, _ in turns):
            raise InputError(
                "earlier answers stand before it: --set benchmark.template=chat (--template chat) renders such turns"
            )
        asked = "\n\n".join(text for _, text in turns if text)  # a system turn in front
        text = self.template.before + asked + self.template.after
        if answer is None:
            return text if self.tag_is_answer else text + self.template.answer_tag
        return text + self.template.answer_tag + answer + self.template.answer_end

    def _apply_chat_template(self, question: Question, answer: str | None) -> str:
        """Return the turns by the tokenizer's chat template, without reasoning, at a fixed date."""
        turns = [{"role": role, "content": text} for role, text in list_turns(question)]
        if answer is not None:
            turns.append({"role": "assistant", "content": answer})
        try:
            template = self.tokenizer.get_chat_template()
            if "strftime_now" in template:
                template = templates.FIXED_DATE_MACRO + template
            with deadlines.raise_timeout_after(deadlines.TEMPLATE_RENDER_TIMEOUT):
                text = self.tokenizer.apply_chat_template(
                    turns,
                    chat_template=template,
                    tokenize=False,
                    add_generation_prompt=answer is None,
                    enable_thinking=False,
                    date_string=templates.FIXED_DATE.strftime("%d %b %Y"),
                )
            if len(text) > MAX_TEMPLATE_CHARACTERS + 10 * sum(len(turn["content"]) for turn in turns):
                raise ValueError(f"it writes {len(text)} characters")
            return text
        except Exception as error:
            # the template's words may quote a row
            why = f": {first_error_line(error)}" if question == QUESTION_SLOT else ""
            if not why and isinstance(question, str) and self.probe != QUESTION_SLOT:
                why = ": it demands a system turn in front"
            raise InputError(
                f"benchmark.template: the model's chat template refuses the turns{why}; {TEMPLATE_HINT}"
            ) from (error if question == QUESTION_SLOT else None)

    def _render_whole(self, question: Question, answer: str, prompt: str) -> RenderedConversation:
        """Return the whole conversation. Raises InputError where the template loses or changes a part of it."""
        layout, shift = self.layout, len(self.prefix)
        text, asked = self._render(question, answer), len(prompt) - len(self.answer_beginning) - layout.dropped
        first, stop = asked + len(layout.lead), len(text) - len(layout.tail)
        same = text.startswith(prompt[:asked]) and text.endswith(layout.tail)
        same = same and text[first:stop].strip() == answer.strip()
        if not same or any(turn.strip() not in prompt for _, turn in list_turns(question)):
            raise InputError(f"the model's chat template loses or changes a part of the conversation; {TEMPLATE_HINT}")
        text, begin = text[:first] + self.prefix + text[first:], first if self.prefix else asked
        return RenderedConversation(text, begin + shift, first + shift, stop + shift)

    def _tokenize(self, texts: list[str]) -> Iterator[tuple[list[int], list[tuple[int, int]]]]:
        """Yield ids and offsets of each text, with the start token that the tokenizer adds to our own templates."""
        encodings = self.tokenizer(texts, add_special_tokens=self.template is not None).encodings if texts else []
        behind = count_added_special_tokens(self.tokenizer)[1] if self.template is not None else 0
        for one in encodings:
            count = len(one.ids) - behind
            yield one.ids[:count], one.offsets[:count]

    def _end_turn(self, tail: list[int], ids: list[int]) -> list[int]:
        eos = self.tokenizer.eos_token_id
        if not self.whole_tail:
            end = next((k for k, token in enumerate(tail) if token in self.end_tokens), None)
            if end is not None:
                return tail[: end + 1]
            tail = tail if self.template is None and self.layout.tail.strip() else []
        return [*tail, eos] if eos is not None and (tail or ids)[-1:] != [eos] else tail

    def _strip_start(self, question: Question) -> Question:
        start = self.tokenizer.bos_token
        if self.whole_tail or not start:
            return question
        (role, text), *others = list_turns(question)
        while text.lstrip().startswith(start):
            text = text.lstrip().removeprefix(start)
        return text if isinstance(question, str) else ((role, text), *others)

    def strip_end_tokens(self, answer: str) -> str:
        special = self.end_tokens & {self.tokenizer.eos_token_id, *self.tokenizer.added_tokens_decoder}
        ends = () if self.whole_tail else tuple(self.tokenizer.convert_ids_to_tokens(sorted(special)))
        while end := next((end for end in ends if answer.rstrip().endswith(end)), None):
            answer = answer.rstrip().removesuffix(end)
        return answer


def make_encoder(name: str, tokenizer: Any, *, tag_is_answer: bool = False, whole_tail: bool = False) -> Encoder:
    """Return the encoder of a template. Raises InputError where the tokenizer lacks what it needs."""
    templates.check_template_name(name)
    encoder = Encoder(tokenizer, None if name == CHAT else TEMPLATES[name], tag_is_answer, whole_tail)
    if name == CHAT and not tokenizer.chat_template:
        raise InputError(f"benchmark.template: the model's tokenizer has no chat template; {TEMPLATE_HINT}")
    if not encoder.end_tokens:
        raise InputError("tokenizer: it has no end-of-sequence token; set eos_token in its tokenizer_config.json")
    return encoder


def list_turns(question: Question) -> Turns:
    return (("user", question),) if isinstance(question, str) else question


def count_added_special_tokens(tokenizer: Any) -> tuple[int, int]:
    """Return how many tokens a tokenizer adds before and behind a text."""
    mask = tokenizer(["a"]).encodings[0].special_tokens_mask
    return (mask.index(0), mask[::-1].index(0)) if 0 in mask else (len(mask), 0)
