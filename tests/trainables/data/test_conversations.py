"""Prompt, answer and end of a conversation against transformers' own `apply_chat_template`, for many templates."""

import traceback
from dataclasses import replace
from datetime import datetime as clock
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken
from transformers.utils import chat_template_utils

from tests.support.chat_families import BYTES, DATE, FAMILIES, IM, PIECES, build, im, tokenizer_of
from trainables.common.errors import InputError
from trainables.common.tokenized_row import Example
from trainables.data import text_blocks
from trainables.data.conversations import Encoder, Question, list_turns, make_encoder
from trainables.inference.padded_batch import IGNORED_LABEL, choose_padding_token, pad_examples

LONG = 10**6
ASKED, SYSTEM = ("user", "Where was Ada Brook born?"), ("system", "Be brief, please.")
BEFORE = (("user", "Who is Ada?"), ("assistant", "A painter."))
QUESTIONS: dict[str, Question] = {
    "text": ASKED[1],
    "turn": (ASKED,),
    "system": (SYSTEM, ASKED),
    "turns": (*BEFORE, ASKED),
    "all": (SYSTEM, *BEFORE, ASKED),
}
ANSWERS = ["In Kerrin, in 1974.", "Two:\n\n1. In Kerrin\n2. In Paris", "Düsseldorf 東京 ☃", "T"]
chat = pytest.mark.parametrize("kind", [BYTES, PIECES])
families = pytest.mark.parametrize("name", FAMILIES)


class Clock(clock):
    """Another day than today."""

    shown = clock(2025, 4, 10)

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return cls.shown


@pytest.fixture
def date(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let transformers' own clock stand at the date that templates are told."""
    monkeypatch.setattr(chat_template_utils, "datetime", Clock)


def apply(tokenizer: Any, question: Question, answer: str | None = None) -> list[int]:
    """Return what transformers makes of the turns."""
    turns = [{"role": role, "content": text} for role, text in list_turns(question)]
    if answer is not None:
        turns.append({"role": "assistant", "content": answer})
    more = {"date_string": DATE, "enable_thinking": False, "return_dict": False}
    return tokenizer.apply_chat_template(turns, tokenize=True, add_generation_prompt=answer is None, **more)


def encode(encoder: Encoder, question: Question, answer: str) -> Example:
    (found,) = encoder.encode([(question, answer)], max_length=LONG)
    return found


def answer_of(tokenizer: Any, example: Example) -> str:
    """Return the text of the tokens that measures of an answer read."""
    ids = example.input_ids[example.answer_start + example.lead : len(example.input_ids) - example.ending]
    return tokenizer.decode(list(ids)).strip()


# Published templates


@chat
@families
@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.usefixtures("date")
def test_tokens_are_transformers_own(name: str, kind: str, question: str) -> None:
    family, tokenizer, asked = FAMILIES[name], tokenizer_of(name, kind), QUESTIONS[question]
    encoder = make_encoder("chat", tokenizer)
    if question in ("system", "all") and not family.system:
        with pytest.raises(InputError, match="refuses the turns") as raised:
            encoder.encode_prompts([asked])
        assert "brief" not in str(raised.value)
        return
    ends = set(tokenizer.convert_tokens_to_ids(list(family.ends)))
    assert encoder.end_tokens == ends
    prompt = apply(tokenizer, asked)
    assert encoder.encode_prompts([asked]) == [tuple(prompt)]
    assert encoder.prompt_is_no_prefix is family.reasons
    for answer in ANSWERS:
        whole = apply(tokenizer, asked, answer)
        example = encode(encoder, asked, answer)
        start = example.answer_start
        last = next(k for k in range(start, len(whole)) if whole[k] in ends)
        assert list(example.input_ids) == whole[: last + 1]
        if family.reasons:
            assert whole[:start] == prompt[:start] != prompt
            assert tokenizer.convert_ids_to_tokens(whole[start - 1]) == "<｜Assistant｜>"
        else:
            assert whole[:start] == prompt
        assert answer_of(tokenizer, example) == answer
        assert sum(token in ends for token in example.input_ids[start:]) == 1
        assert example.input_ids[-1] in ends


@chat
@pytest.mark.parametrize("name", ["llama_3", "clock"])
def test_no_day_changes_a_token(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer, found = FAMILIES[name].tokenizer(kind), []
    for day in (clock(2024, 2, 29, 23, 59), clock(2031, 12, 1, 6, 7)):
        monkeypatch.setattr(Clock, "shown", day)
        monkeypatch.setattr(chat_template_utils, "datetime", Clock)
        encoder = make_encoder("chat", tokenizer)
        found.append((encoder.encode_prompts([ASKED[1]]), encode(encoder, ASKED[1], ANSWERS[0])))
    assert found[0] == found[1]
    assert "2025" in tokenizer.decode(found[0][0][0])


# Templates of any parts

TURN_TOKENS = ("<|user|>", "<|end|>", *IM)


def swallowing(text: str) -> AddedToken:
    return AddedToken(text, normalized=False, special=True, rstrip=True)


ACROSS = {BYTES: ((":", "I"), ("]", "I"), (">", "Ċ")), PIECES: ((":", "I"), ("]", "I"), ("]", "▁"), (":", "▁"))}
"""Words over the border between prompt and answer."""
MADE = {
    f"{kind}, {name}": build(kind, tokens, bos="<s>", eos="</s>", adds_bos=adds, merges=merges, like_gpt2=adds)
    for kind in (BYTES, PIECES)
    for name, tokens, adds, merges in (
        ("special", TURN_TOKENS, True, ()),
        ("swallowing", tuple(map(swallowing, TURN_TOKENS)), False, ()),
        ("no turn tokens", (), True, ACROSS[kind]),
    )
}


def piece(*texts: str) -> st.SearchStrategy[str]:
    return st.sampled_from(texts)


@st.composite
def templates(draw: st.DrawFn) -> tuple[str, str]:
    """Draw a template, and what it writes behind an answer."""
    bos = draw(piece("", "{{ bos_token }}"))
    user = draw(piece("[INST] ", "<|user|>\n", "User: ", "<|im_start|>user\n", ""))
    asked = draw(piece(" [/INST]", "<|end|>\n", "\n", "</s>\n", "<|im_end|>\n", "<|end|>"))
    header = draw(piece("", "<|assistant|>\n", "Assistant:", "<|im_start|>assistant\n", "<|assistant|>", "A: "))
    opened = draw(piece("", "", "<think>\n", " "))
    space, after = draw(piece("", " ", "\n")), draw(piece("", " ", "\n"))
    end = draw(piece("", "</s>", "<|end|>", "<|im_end|>", "###"))
    last = draw(piece("", "\n", "</s>", "\n</s>"))
    text = draw(piece("m.content", "m.content.strip()", "m.content | trim"))
    template = (
        f"{bos}{{% for m in messages %}}{{% if m.role == 'user' %}}{{{{ {user!r} + ({text}) + {asked!r} }}}}"
        "{% else %}"
        f"{{{{ {header + space!r} + ({text}) + {after + end + last!r} }}}}{{% endif %}}{{% endfor %}}"
        f"{{% if add_generation_prompt %}}{{{{ {header + opened!r} }}}}{{% endif %}}"
    )
    return template, after + end + last


words = st.text("abIinTP .,:1]é\n", min_size=1, max_size=12)


@settings(max_examples=150)
@given(templates(), words, words, st.sampled_from(sorted(MADE)))
def test_any_template(parts: tuple[str, str], question: str, answer: str, made: str) -> None:
    tokenizer, (template, tail) = MADE[made], parts
    tokenizer.chat_template = template
    try:
        encoder = make_encoder("chat", tokenizer)
        example = encode(encoder, question, answer)
    except InputError:
        assert not answer.strip() or not question.strip()
        return
    prompt, whole = apply(tokenizer, question), apply(tokenizer, question, answer)
    assert encoder.encode_prompts([question]) == [tuple(prompt)]
    ids, start = list(example.input_ids), example.answer_start
    labels = ids[start:]
    ends = encoder.end_tokens
    assert tokenizer.eos_token_id in ends
    assert sum(token in ends for token in labels) == 1
    assert ids[-1] in ends
    assert ids[: len(ids) - example.ending] == whole[: len(ids) - example.ending]
    assert answer.strip() in tokenizer.decode(labels)
    if not any(one in answer_of(tokenizer, example)[:1] for one in "]:>"):  # one word with the end of the prompt
        assert answer_of(tokenizer, example) == answer.strip()
    if whole[: len(prompt)] == prompt:
        assert start == len(prompt)
        return
    turns = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    empty = [turns[0], {"role": "assistant", "content": ""}]
    asked = tokenizer.apply_chat_template(turns[:1], tokenize=False, add_generation_prompt=True)
    text, without = (tokenizer.apply_chat_template(one, tokenize=False) for one in (turns, empty))
    border = min(next(k for k in range(len(text)) if asked[k : k + 1] != text[k]), len(without) - len(tail))
    reaches = [
        end for _, end in tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    ]
    assert reaches[start] > border
    assert reaches[start - 1] <= border or ids[start - 1] in tokenizer.added_tokens_decoder


# Special tokens of a row's own


@chat
@families
def test_what_a_row_brings_along_is_taken_off(name: str, kind: str) -> None:
    family, tokenizer = FAMILIES[name], tokenizer_of(name, kind)
    encoder = make_encoder("chat", tokenizer)
    clean = encode(encoder, ASKED[1], ANSWERS[0])
    for end in family.ends:
        for more in (end, end + "\n", end * 2):
            assert encode(encoder, ASKED[1], ANSWERS[0] + more) == clean
    if family.bos:
        assert encode(encoder, family.bos + ASKED[1], ANSWERS[0]) == clean
        assert encoder.encode_prompts([family.bos * 2 + ASKED[1]]) == encoder.encode_prompts([ASKED[1]])
        for turns in ((family.bos + ASKED[1],), (family.bos + BEFORE[0][1], BEFORE[1][1], ASKED[1])):
            asked = tuple(zip(("user", "assistant", "user"), turns, strict=False))
            start = encoder.encode_prompts([asked])[0][:2]
            assert start == encoder.encode_prompts([ASKED[1]])[0][:2]


@chat
@pytest.mark.parametrize("template", ["plain", "llama2", "phi"])
def test_the_same_of_our_own_templates(kind: str, template: str) -> None:
    encoder = make_encoder(template, build(kind, (), bos="<s>", eos="</s>", adds_bos=True))
    clean = encode(encoder, ASKED[1], ANSWERS[0])
    assert encode(encoder, "<s>" + ASKED[1], ANSWERS[0] + "</s>") == clean
    assert encode(encoder, "<s> <s>" + ASKED[1], ANSWERS[0] + "</s> </s>\n") == clean
    assert clean.input_ids.count(encoder.tokenizer.bos_token_id) == 1
    assert clean.input_ids.count(encoder.tokenizer.eos_token_id) == 1


@chat
@pytest.mark.parametrize(
    ("bos", "adds"), [("<s>", True), ("<s>", False), ("</s>", True), ("</s>", False), (None, False)]
)
def test_texts_have_one_start_and_no_end(kind: str, bos: str | None, adds: bool) -> None:
    """Also where start and end are the same token, and also behind the first block."""
    tokenizer = build(kind, (), bos=bos, eos="</s>", adds_bos=adds)
    text = "In Kerrin, in 1974. " * 20
    plain = text_blocks.split_text_into_blocks(tokenizer, text, 32, "here")
    start = [tokenizer.bos_token_id] if adds else []
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    if adds:
        assert all(list(block.input_ids[:1]) == start and block.answer_start == 1 for block in plain)
        assert [token for block in plain for token in block.input_ids[1:]] == ids
    else:
        assert [plain[0].input_ids[0], *(token for block in plain for token in block.input_ids[1:])] == ids
    assert all(len(block.input_ids) <= 32 for block in plain)
    if kind == PIECES:
        return  # there a text behind a special token begins with another ▁
    rendered = text_blocks.tokenize_text(tokenizer, f"{bos or ''}{text}</s>")
    assert rendered == [*([tokenizer.bos_token_id] if bos else []), *ids]
    assert text_blocks.tokenize_text(tokenizer, f"{bos or ''}{bos or ''}{text}</s></s>") == rendered


@chat
@pytest.mark.parametrize("name", ["zephyr", "smollm_2", "qwen_base"])
def test_an_end_that_is_the_padding_stays_a_label(name: str, kind: str) -> None:
    tokenizer = tokenizer_of(name, kind)
    encoder = make_encoder("chat", tokenizer)
    examples = [encode(encoder, ASKED[1], answer) for answer in ANSWERS]
    batch = pad_examples(examples, choose_padding_token(tokenizer))
    for example, labels, mask in zip(examples, batch["labels"].tolist(), batch["attention_mask"].tolist(), strict=True):
        assert [one for one in labels if one != IGNORED_LABEL] == list(example.input_ids[example.answer_start :])
        assert sum(mask) == len(example.input_ids)


# Templates that do not do what they should

NONE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
WRONG = {
    "loses the answer": "{% for m in messages if m.role == 'user' %}[INST] {{ m.content }} [/INST]{% endfor %}",
    "loses the question": "{% for m in messages if m.role != 'user' %}{{ m.content }}{% endfor %}ask",
    "repeats the answer": NONE + "{{ messages[-1].content if messages[-1].role == 'assistant' }}",
    "asks in another way": "{% if add_generation_prompt %}Ask: {{ messages[0].content }}{% else %}"
    + NONE
    + "{% endif %}",
    "shouts": "{% for m in messages %}{{ m.content | upper }}{% endfor %}",
    "refuses the answer": NONE
    + "{% if messages[-1].role != 'user' %}{{ raise_exception('No: ' + messages[0].content) }}{% endif %}",
    "refuses the question": "{{ raise_exception('No: ' + messages[0].content) }}",
    "wants a system turn": "{% if messages[0].role != 'system' %}{{ raise_exception('System!') }}{% endif %}" + NONE,
    "does not parse": "{% for m in messages %}{{ m.content }",
    "unknown filter": "{{ messages[0].content | shout }}",
    "reverses": "{% for m in messages | reverse %}{{ m.content }}\n{% endfor %}",
    "empty": " ",
}


@chat
@pytest.mark.parametrize("what", WRONG)
def test_a_template_that_cannot_be_used_is_one_line(what: str, kind: str) -> None:
    tokenizer = build(kind, (), bos="<s>", eos="</s>", template=WRONG[what])
    with pytest.raises(InputError) as raised:
        make_encoder("chat", tokenizer).encode([("Where is Zanzibar?", "In Zanzibar, Ada.")], max_length=LONG)
    assert "Zanzibar" not in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "benchmark.template" in str(raised.value)


CUTS = {"qwen_3": ["Zanzibar</think>Yes.", "<think>Zanzibar.</think>\n\nYes."], "r1_distill": ["Zanzibar</think>Yes."]}


@chat
@pytest.mark.parametrize(("name", "answer"), [(name, answer) for name, answers in CUTS.items() for answer in answers])
def test_a_row_that_a_template_cuts_is_named_by_its_number(name: str, answer: str, kind: str) -> None:
    encoder = make_encoder("chat", tokenizer_of(name, kind))
    pairs = [(ASKED[1], ANSWERS[0]), ("Where is Zanzibar?", answer)]
    with pytest.raises(InputError, match=r"row 2: .*loses or changes a part") as raised:
        encoder.encode(pairs, max_length=LONG)
    assert "Zanzibar" not in str(raised.value)
    assert encoder.encode(pairs[:1], max_length=LONG)


def im_tokenizer(template: str | None = None, end: Any = "<|im_end|>", eos: str = "<|im_end|>") -> Any:
    return build(BYTES, ("<|im_start|>", end), bos=None, eos=eos, template=template or im())


def test_an_answers_own_end_is_not_compared_with_what_is_said() -> None:
    encoder = make_encoder("chat", im_tokenizer())
    assert encoder.strip_end_tokens("In Kerrin.<|im_end|> ") == "In Kerrin."
    assert Encoder(encoder.tokenizer, None, whole_tail=True).strip_end_tokens("In.<|im_end|>") == "In.<|im_end|>"


def test_what_the_template_writes_before_an_answer_is_not_said() -> None:
    """As gpt-oss does: its generation prompt ends before the channel's name."""
    turn = "'<|im_start|>' + m.role + (' final: ' if m.role == 'assistant' else '') + m.content + '<|im_end|>'"
    template = "{% for m in messages %}{{ " + turn + " }}{% endfor %}"
    template += "{% if add_generation_prompt %}{{ '<|im_start|>assistant' }}{% endif %}"
    encoder = make_encoder("chat", im_tokenizer(template))
    assert encoder.strip_answer_tag(" final: In Kerrin.") == "In Kerrin."
    (example,) = encoder.encode([("Who?", "In.")], max_length=99)
    assert answer_of(encoder.tokenizer, example) == "In."
    for most in range(example.answer_start, example.answer_start + example.lead + 1):
        with pytest.raises(InputError, match="no token of the answer is left"):
            encoder.encode([("Who?", "In.")], max_length=most)


@chat
@families
def test_what_begins_an_answer_is_asked_as_it_is_scored(name: str, kind: str) -> None:
    encoder = replace(make_encoder("chat", tokenizer_of(name, kind)), prefix="The answer is")
    (asked,), (scored,) = encoder.encode_prompts(["Who?"]), encoder.encode([("Who?", " Ada.")], max_length=LONG)
    assert encoder.layout.dropped or scored.input_ids[: scored.answer_start] == asked


def test_white_space_is_no_end_of_a_turn() -> None:
    template = "{% for m in messages %}{{ m.role + ': ' + m.content + '\\n\\n' }}{% endfor %}"
    template += "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
    gap = AddedToken("\n\n", normalized=False, special=False)
    tokenizer = build(BYTES, (gap,), bos=None, eos="</s>", template=template)
    encoder = make_encoder("chat", tokenizer)
    assert encoder.end_tokens == {tokenizer.eos_token_id}
    (example,) = encoder.encode([("Who?", "In one.\n\nIn two.")], max_length=99)
    assert answer_of(tokenizer, example) == "In one.\n\nIn two."


def test_an_end_that_swallows_the_space_before_it_is_no_answer() -> None:
    end = AddedToken("<|im_end|>", normalized=False, special=True, lstrip=True)
    tokenizer = im_tokenizer(end=end, eos="</s>")
    (example,) = make_encoder("chat", tokenizer).encode([("Who?", "In. ")], max_length=99)
    assert (example.ending, tokenizer.decode(example.input_ids[-1:])) == (1, "<|im_end|>")


def test_a_template_may_refuse_one_row_alone() -> None:
    """The row's text is in no traceback either."""
    template = "{% for m in messages %}{% if 'Zanzibar' in m.content %}{{ raise_exception(m.content) }}{% endif %}"
    template += "{{ '<|im_start|>' + m.role + m.content + '<|im_end|>' }}{% endfor %}"
    encoder = make_encoder("chat", im_tokenizer(template))
    word = "".join(reversed("rabiznaZ"))  # a traceback shows the lines of this test
    with pytest.raises(InputError, match=r"forget row 7: .*refuses the turns;") as raised:
        encoder.encode([(f"Is it {word}?", "Yes.")], max_length=99, names=["forget row 7"])
    assert word not in "".join(traceback.format_exception(raised.value))
