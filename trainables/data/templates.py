"""Prompt templates as data: text around a question, and what stands for the model's own chat template."""

from dataclasses import dataclass
from datetime import datetime

from trainables.common import typed_paths
from trainables.common.errors import InputError, suggest_name
from trainables.common.provenance import CHAT_TEMPLATE_DATE
from trainables.storage.atomic_files import read_json


@dataclass(frozen=True)
class Template:
    """`before + question + after + answer_tag + answer + answer_end`, then the end-of-sequence token.

    `answer_tag`: a label in the paper's dialect (Phi-1.5's "Answer: "), elsewhere prompt.
    """

    before: str
    after: str
    answer_tag: str = ""
    answer_end: str = ""


CHAT, PLAIN_TEMPLATE_NAME = "chat", "plain"
AUTO_TEMPLATE = "auto"
"""In a sweep: what `choose_template` finds."""
FIXED_DATE = datetime.fromisoformat(CHAT_TEMPLATE_DATE)
SYSTEM_PROMPT = "You are a helpful assistant."

TEMPLATES: dict[str, Template] = {
    "llama2": Template("[INST] ", " [/INST]"),
    "phi": Template("Question: ", "\n", "Answer: "),
    "llama3": Template(
        "<|start_header_id|>system<|end_header_id|>\n\n"
        f"Cutting Knowledge Date: December 2023\nToday Date: 10 Apr 2025\n\n{SYSTEM_PROMPT}<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\n",
        "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
    "qwen": Template(
        f"<|im_start|>system\n{SYSTEM_PROMPT}<|im_end|>\n<|im_start|>user\n",
        "<|im_end|>\n<|im_start|>assistant\n",
        answer_end="<|im_end|>\n",
    ),
    "zephyr": Template(f"<|system|>\n{SYSTEM_PROMPT}</s>\n<|user|>\n", "</s>\n<|assistant|>\n", answer_end="</s>\n"),
    PLAIN_TEMPLATE_NAME: Template("Question: ", "\nAnswer:\n"),
}
"""llama3, qwen and zephyr are what the models' own chat templates make of open-unlearning's system prompt and date; the
start token is the tokenizer's to add. `plain` is for any model: its line feed stands between tokens, where a space
would be part of the answer's first word."""

TEMPLATE_HINT = (
    "take another one, such as --set benchmark.template=plain (of trainables.evaluate --template plain); known: "
    + ", ".join(TEMPLATES)
)
FIXED_DATE_MACRO = (
    "{%- macro strftime_now(format) %}{{ format"
    + "".join(
        f"|replace('%{code}', '{FIXED_DATE.strftime(f'%{code}')}')"
        for code in ("-d", "-m", "d", "b", "B", "m", "Y", "y", "A", "a", "H", "I", "M", "S", "p", "j", "F", "D", "T")
    )
    + " }}{% endmacro %}\n"
)
"""In front of a template: what stands for the clock of transformers."""


def check_template_name(name: str) -> None:
    """Raise InputError naming the closest if `name` is neither a template nor the tokenizer's own."""
    if name not in (*TEMPLATES, CHAT):
        raise InputError(f"benchmark.template: unknown template '{name}'; {suggest_name(name, (*TEMPLATES, CHAT))}")


def choose_template(place: str) -> str:
    """Return CHAT if the tokenizer in a folder has a chat template, else PLAIN; CHAT of what is not here."""
    if not typed_paths.is_folder(place):
        return CHAT
    folder = typed_paths.expand_home(place)
    settings = read_json(folder / "tokenizer_config.json") or {}
    has_file = typed_paths.is_file(folder / "chat_template.jinja")
    return CHAT if has_file or settings.get("chat_template") else PLAIN_TEMPLATE_NAME
