"""A random model that takes no training, its byte-level tokenizer, and made-up texts and questions."""

import json
import random
from pathlib import Path
from typing import Any

WORDS = (
    "amber bridge candle distant empty ferry garden hidden island journey kettle lantern meadow narrow orchard".split()
)


def tokenizer() -> Any:
    """Every byte is a token; a start token in front of what it reads."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = ["<s>", "</s>", "<pad>"]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    known = {token: number for number, token in enumerate([*special, *letters])}
    made = Tokenizer(models.BPE(vocab=known, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(special)
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="</s>", pad_token="<pad>")


SHAPE: dict[str, Any] = {
    "vocab_size": 259,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 2,
    "max_position_embeddings": 2048,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
    "initializer_range": 0.3,
}


def network(seed: int = 0, layers: int = 3, family: str = "Llama", **settings: Any) -> Any:
    """Random weights, large enough that its answers differ from question to question."""
    import torch
    import transformers

    torch.manual_seed(seed)
    config = getattr(transformers, f"{family}Config")(**SHAPE | {"num_hidden_layers": layers} | settings)
    return getattr(transformers, f"{family}ForCausalLM")(config).eval()


def write_model(folder: Path, seed: int = 0, layers: int = 3, **changes: Any) -> Path:
    network(seed, layers, **changes).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def teach(network: Any, examples: Any) -> Any:
    """The network after it has learnt rows, so that it says them."""
    import torch

    from trainables.inference.padded_batch import pad_examples

    batch = pad_examples(examples, 2)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2)
    for _ in range(60):
        network(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return network


def text(seed: int, words: int) -> str:
    drawn = random.Random(seed)
    return " ".join(drawn.choice(WORDS) for _ in range(words)) + "."


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def muse(folder: Path, texts: int = 4) -> Path:
    """Made-up texts and questions in the layout of the hub's muse-bench/MUSE-News."""
    for name, seed in (("raw/forget", 0), ("raw/retain1", 100), ("privleak/forget", 0), ("privleak/holdout", 200)):
        write_rows(folder / f"{name}.json", [{"text": text(seed + k, 12 + k)} for k in range(texts)])
    pairs = [{"prompt": text(k, 8), "gt": text(k + 50, 30)} for k in range(texts)]
    write_rows(folder / "verbmem/forget.json", pairs)
    for number, side in enumerate(("forget", "retain")):
        asked = [{"question": f"Where is the {word}?", "answer": text(300 + k, 3)} for k, word in enumerate(WORDS)]
        shown, asked = asked[:3], asked[3 + number : 3 + number + texts]
        write_rows(folder / f"knowmem/{side}_qa.json", asked)
        write_rows(folder / f"knowmem/{side}_qa_icl.json", shown)
    return folder


def choices(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Multiple-choice rows about nothing, in the columns of cais/mmlu and cais/wmdp."""
    drawn = random.Random(seed)
    return [
        {
            "question": f"Which word comes after {drawn.choice(WORDS)} in list {k}?",
            "choices": drawn.sample(WORDS, 4),
            "answer": drawn.randrange(4),
        }
        for k in range(count)
    ]


def own(folder: Path) -> dict[str, Path]:
    """Made-up rows of one's own: questions and texts, paraphrases, utility rows and hold-out rows."""
    files = {part: folder / f"{part}.jsonl" for part in ("forget", "retain", "eval")}
    asked = [{"question": f"Where is the {word}?", "answer": text(k, 3)} for k, word in enumerate(WORDS)]
    asked[0] |= {"paraphrased_question": "In which place is the amber?", "paraphrased_answer": "It is " + text(0, 3)}
    write_rows(files["forget"], [*asked[:4], {"text": text(60, 20)}, {"text": text(61, 4)}])
    write_rows(files["retain"], [*asked[4:9], {"text": text(70, 20)}])
    further = [asked[9] | {"set": "paraphrase"}, *(row | {"set": "retain"} for row in asked[10:12])]
    write_rows(files["eval"], [*further, *({"text": text(80 + k, 9), "set": "holdout"} for k in range(3))])
    return files


def encode_rows(tokenizer: Any, rows: Any, template: str, dialect: Any, max_length: int) -> Any:
    """Return TOFU's questions and answers as a dialect has them."""
    from trainables.benchmarks import tofu
    from trainables.config.settings import Benchmark

    encoder = tofu.TofuBenchmark().make_encoder(Benchmark(template=template, dialect=dialect), tokenizer)
    return encoder.encode([(row["question"], row["answer"]) for row in rows], max_length=max_length)


class PlainEngine:
    """One rank in plain PyTorch."""

    rank, world, compiled_losses = 0, 1, None

    def __init__(self, inner: Any, packs: bool = False) -> None:
        import torch

        self.inner = inner
        self.packs = packs
        self.device = torch.device("cpu")

    def backward(self, loss: Any, *, last: bool) -> None:
        loss.backward()

    def sum_over_ranks(self, value: Any) -> Any:
        return value
