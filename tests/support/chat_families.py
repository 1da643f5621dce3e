"""Chat templates of published models, written anew after what they do, and small tokenizers of their kinds."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers import models as tokenizer_models
from transformers import PreTrainedTokenizerFast

BYTES, PIECES = "bytes", "pieces"
"""Byte-level BPE, as GPT-2's; and SentencePiece's way, as Llama 2's: ▁ for a space, one more in front of a text."""
WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
"""How Llama 3 and Qwen cut a text into words."""
DATE = "10 Apr 2025"
"""What a template is told that writes the date."""


def build(
    kind: str,
    special: tuple[str | AddedToken, ...],
    *,
    bos: str | None,
    eos: str | None,
    pad: str | None = None,
    adds_bos: bool = False,
    template: str | None = None,
    merges: tuple[tuple[str, str], ...] = (),
    like_gpt2: bool = False,
) -> Any:
    """Return a tokenizer that knows some words with a space in front; `adds_bos`: it puts `bos` before a text."""
    space = {BYTES: "Ġ", PIECES: "▁"}[kind]
    pairs = [(space, letter) for letter in "TIPWAt12"] + [("i", "n"), (space + "I", "n"), *merges]
    if kind == BYTES:
        letters, base = sorted(pre_tokenizers.ByteLevel.alphabet()), [("Ċ", "Ċ"), (".", "Ċ")]
        first: list[str] = []
    else:
        letters, base = [*map(chr, range(33, 127)), "▁"], [("▁", "▁")]
        first = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pairs = [*base, *pairs]
    names = dict.fromkeys([*first, *letters, *(one + other for one, other in pairs)])
    vocabulary = {name: number for number, name in enumerate(names)}
    if kind == BYTES:
        tokenizer = Tokenizer(tokenizer_models.BPE(vocabulary, pairs))
        split = [] if like_gpt2 else [pre_tokenizers.Split(Regex(WORDS), "isolated")]
        last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=like_gpt2)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*split, last])
        tokenizer.decoder = decoders.ByteLevel()
    else:
        bpe = tokenizer_models.BPE(vocabulary, pairs, byte_fallback=True, fuse_unk=True, unk_token="<unk>")
        tokenizer = Tokenizer(bpe)
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        tokenizer.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )
    named = [token for token in (bos, eos, pad) if token]
    more = [one for one in named if one not in map(str, special)]
    tokens = [AddedToken(one, normalized=False, special=True) if isinstance(one, str) else one for one in special]
    tokenizer.add_special_tokens([*(AddedToken(one, normalized=False, special=True) for one in more), *tokens])
    if adds_bos and bos:
        ids = [(bos, tokenizer.token_to_id(bos))]
        tokenizer.post_processor = processors.TemplateProcessing(single=f"{bos} $A", special_tokens=ids)
    settings = {key: value for key, value in {"bos_token": bos, "eos_token": eos, "pad_token": pad}.items() if value}
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False, **settings)
    made.chat_template = template
    return made


@dataclass(frozen=True)
class Family:
    """A model's template and special tokens. `more_ends`: what ends an answer besides `eos`.

    `system`: it takes a system turn. `reasons`: the generation prompt opens a reasoning that a whole conversation does
    not have.
    """

    template: str
    bos: str | None = "<s>"
    eos: str = "</s>"
    special: tuple[str | AddedToken, ...] = ()
    more_ends: tuple[str, ...] = ()
    pad: str | None = None
    adds_bos: bool = True
    system: bool = True
    reasons: bool = False

    @property
    def ends(self) -> tuple[str, ...]:
        return (self.eos, *self.more_ends)

    def tokenizer(self, kind: str) -> Any:
        settings = {"bos": self.bos, "eos": self.eos, "pad": self.pad, "adds_bos": self.adds_bos}
        return build(kind, self.special, **settings, template=self.template)


def im(after_role: str = "\\n", after_turn: str = "\\n", system: str = "", generation: str = "") -> str:
    """Return ChatML: `<|im_start|>ROLE`, the text, `<|im_end|>`; `system`: put in front where there is no such turn."""
    default = f"<|im_start|>system{after_role}{system}<|im_end|>{after_turn}"
    first = f"{{% if messages[0].role != 'system' %}}{{{{ '{default}' }}}}{{% endif %}}" if system else ""
    return (
        first + "{% for m in messages %}"
        f"{{{{ '<|im_start|>' + m.role + '{after_role}' + m.content + '<|im_end|>{after_turn}' }}}}"
        "{% endfor %}{% if add_generation_prompt %}"
        f"{{{{ '<|im_start|>assistant{after_role}{generation}' }}}}{{% endif %}}"
    )


LLAMA_2 = """
{%- set told = messages[0].content if messages[0].role == 'system' else none %}
{%- for m in (messages[1:] if told is not none else messages) %}
    {%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}
    {%- set said = ('<<SYS>>\\n' + told + '\\n<</SYS>>\\n\\n' if loop.first and told is not none else '') + m.content %}
    {%- if m.role == 'user' %}{{ bos_token + '[INST] ' + said.strip() + ' [/INST]' }}
    {%- else %}{{ ' ' + said.strip() + ' ' + eos_token }}{% endif %}
{%- endfor %}"""
LLAMA_3 = """
{{- bos_token }}
{%- if not date_string is defined %}
    {%- set date_string = strftime_now('%d %b %Y') if strftime_now is defined else '26 Jul 2024' %}
{%- endif %}
{%- if messages[0].role == 'system' %}{% set told, rest = messages[0].content|trim, messages[1:] %}
{%- else %}{% set told, rest = '', messages %}{% endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\nCutting Knowledge Date: December 2023\\n' }}
{{- 'Today Date: ' + date_string + '\\n\\n' + told + '<|eot_id|>' }}
{%- for m in rest %}
    {{- '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' + m['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"""
CLOCK_ALONE = """
{{- bos_token + '<|im_start|>system\\nToday is ' + strftime_now('%A, %-d %B %Y (%Y-%m-%d), %H:%M') + '<|im_end|>\\n' }}
{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
MISTRAL_3 = """
{%- set told = messages[0]['content'] if messages[0]['role'] == 'system' else '' %}
{%- set rest = messages[1:] if told else messages %}
{%- set asked = rest|selectattr('role', 'equalto', 'user')|list %}
{{- bos_token }}
{%- for m in rest %}
    {%- if m.role == 'user' %}
        {%- if tools is not none and m == asked[-1] %}{{ '[AVAILABLE_TOOLS] ' + tools|tojson }}{% endif %}
        {{- '[INST] ' + (told + '\\n\\n' if told and m == asked[-1] else '') + m.content + '[/INST]' }}
    {%- else %}{{ ' ' + m.content|trim + eos_token }}{% endif %}
{%- endfor %}"""
GEMMA_2 = """
{{- bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{%- for m in messages %}
    {{- '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' + m.content | trim }}
    {{- '<end_of_turn>\\n' }}
{%- endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"""
QWEN_3 = """
{%- set ns = namespace(last=-1) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- for m in messages %}
    {%- if m.role != 'assistant' %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
    {%- else %}
        {%- set thought, said = '', m.content %}
        {%- if m.reasoning_content is string %}{% set thought = m.reasoning_content %}
        {%- elif '</think>' in said %}
            {%- set thought = said.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set said = said.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if loop.index0 > ns.last %}{{ '<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' }}{% endif %}
        {{- said.lstrip('\\n') + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}
{%- endif %}"""
PHI_3 = """
{%- for m in messages %}{{ '<|' + m['role'] + '|>\\n' + m['content'] + '<|end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}"""
ZEPHYR = """
{%- for m in messages %}{{ '<|' + m['role'] + '|>\\n' + m['content'] + eos_token + '\\n' }}
    {%- if loop.last and add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}
{%- endfor %}"""
OLMO_2 = """
{{- bos_token }}{% for m in messages %}
    {%- if m.role != 'assistant' %}{{ '<|' + m.role + '|>\\n' + m.content + '\\n' }}
    {%- else %}{{ '<|assistant|>\\n' + m.content + eos_token + ('' if loop.last else '\\n') }}{% endif %}
    {%- if loop.last and add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}
{%- endfor %}"""
R1_DISTILL = """
{{- bos_token }}{% for m in messages %}
    {%- if m.role == 'system' %}{{ m.content }}
    {%- elif m.role == 'user' %}{{ '<｜User｜>' + m.content }}
    {%- else %}{{ '<｜Assistant｜>' + m.content.split('</think>')[-1] + eos_token }}{% endif %}
{%- endfor %}{% if add_generation_prompt %}{{ '<｜Assistant｜><think>\\n' }}{% endif %}"""
GENERATION_TAGS = """
{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}
    {%- if m.role == 'assistant' %}{% generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}
    {%- else %}{{ m.content + '<|im_end|>' }}{% endif %}{{ '\\n' }}
{%- endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
OLD = "{% for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content + eos_token + '\\n' }}{% endfor %}"
"""From before `add_generation_prompt`: it is not asked for."""


IM, TURNS = ("<|im_start|>", "<|im_end|>"), ("<start_of_turn>", "<end_of_turn>")
THINK = tuple(AddedToken(text, normalized=False, special=False) for text in ("<think>", "</think>"))
PHI = ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>")
"""Tokens that swallow the white space behind them."""
QWEN = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
SMOLLM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
TEXT_END = "<|endoftext|>"
FAMILIES = {
    "llama_2": Family(LLAMA_2),
    "llama_3": Family(
        LLAMA_3, "<|begin_of_text|>", "<|eot_id|>", ("<|start_header_id|>", "<|end_header_id|>", "<|end_of_text|>")
    ),
    "clock": Family(CLOCK_ALONE, "<s>", "<|im_end|>", IM),
    "mistral_3": Family(MISTRAL_3, special=("[INST]", "[/INST]")),
    "gemma_2": Family(GEMMA_2, "<bos>", "<eos>", TURNS, TURNS[1:], pad="<pad>", system=False),
    "qwen_2.5": Family(im(system=QWEN), None, "<|im_end|>", IM, pad=TEXT_END),
    "qwen_base": Family(im(), None, TEXT_END, IM, IM[1:], pad=TEXT_END),
    "qwen_3": Family(QWEN_3, None, "<|im_end|>", (*IM, *THINK), pad=TEXT_END),
    "phi_3": Family(
        PHI_3,
        "<s>",
        TEXT_END,
        tuple(AddedToken(text, normalized=False, special=True, rstrip=True) for text in PHI),
        PHI[3:],
        pad=TEXT_END,
        adds_bos=False,
    ),
    "zephyr": Family(ZEPHYR, pad="</s>"),
    "smollm_2": Family(im(system=SMOLLM), "<|im_start|>", "<|im_end|>", IM, pad="<|im_end|>", adds_bos=False),
    "olmo_2": Family(OLMO_2, TEXT_END, TEXT_END, pad="<|pad|>", adds_bos=False),
    "r1_distill": Family(
        R1_DISTILL,
        "<｜begin▁of▁sentence｜>",
        "<｜end▁of▁sentence｜>",
        ("<｜User｜>", "<｜Assistant｜>", THINK[0]),
        reasons=True,
    ),
    "generation_tags": Family(GENERATION_TAGS, None, "<|im_end|>", IM),
    "old": Family(OLD),
}


@cache
def tokenizer_of(name: str, kind: str) -> Any:
    return FAMILIES[name].tokenizer(kind)
