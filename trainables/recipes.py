"""Making what trials share: data, models and reference evaluations, each under the hash of what it is made from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainables import benchmarks, config, evaluation, models, rows, storage
from trainables.benchmarks import tofu
from trainables.config import Benchmark, Direction, Model, Recipe, Resources, Selection

TOKENIZER_CONFIGS = ("full", "real_authors", "world_facts")
SPECIAL = ("<s>", "</s>", "<pad>")


def make_model(recipe: Recipe, root: str, gpus: float = 0, micro_batch: int | None = None) -> str:
    """Train the model of a recipe unless it is there; returns its folder."""
    folder = storage.Storage(Path(root)).model(recipe.id())
    if folder.is_dir():
        return str(folder)
    from trainables import engine, loop, objectives, presets, rectification, scoring, trial

    resources = Resources(cpus=recipe.cpus, gpus=gpus, precision=recipe.precision)
    device = trial.prepare_process(resources, recipe.seed)
    network, tokenizer = _start(recipe)
    loaded = [
        row for name in recipe.configs for row in rows.load(recipe.data, name, ("question", "answer"), recipe.revision)
    ]
    examples = tofu.encode_rows(tokenizer, loaded, recipe.template, recipe.dialect, recipe.training.max_length)
    task = loop.Task(
        forget=examples,
        retain=(),
        objective=objectives.make("nll", presets.Constants()),
        rectifier=rectification.make("clip", None, recipe.clip),
        training=recipe.training,
        seed=recipe.seed,
        pad=scoring.pad_of(tokenizer),
        micro_batch=micro_batch,
    )
    training = engine.create(network.to(device).train(), recipe.training, resources)
    for _ in loop.run(training, task):
        pass
    folder.parent.mkdir(parents=True, exist_ok=True)
    models.save(training.module, tokenizer, folder, recipe.model_dump(mode="json"))
    training.close()
    return str(folder)


def make_evaluation(
    model: dict[str, Any], benchmark: dict[str, Any], retain: str | None, root: str, resources: Resources
) -> dict[str, Any]:
    """Evaluate a model unless that is done, in the precision and on the device of the trials it is compared with.

    `retain`: the id of the retain model's evaluation, for FQ.
    """
    store = storage.Storage(Path(root))
    subject, on = Model.model_validate(model), Benchmark.model_validate(benchmark)
    key = config.evaluation_id(subject, on, retain, resources.precision)
    folder = store.evaluation(key)
    kept = storage.read_json(folder / storage.RESULT)
    if kept:
        return kept
    from trainables import provenance, trial

    device = trial.prepare_process(resources, 0)
    reference = evaluation.reference(store.evaluation(retain) / storage.RESULT, on) if retain else None
    network, tokenizer = models.load(subject, resources.precision)
    found, records = evaluation.evaluate(
        network.to(device), tokenizer, on, reference, token_budget=resources.evaluation_tokens
    )
    storage.write_rows(folder / storage.ROWS, records)
    result = {
        "id": key,
        "model": subject.model_dump(mode="json"),
        **evaluation.document(on, found, records),
        "metrics": found,
        "halves": benchmarks.halves(on, records, reference),
        **provenance.stamp(),
    }
    storage.write_json(folder / storage.RESULT, result)
    return result


def make_gradients(direction: Direction, group: int, root: str, resources: Resources, micro_batch: int) -> None:
    """The summed gradient of one group of a direction's batches at the target model."""
    from trainables import trial, vectors

    trial.prepare_process(resources, direction.seed)
    shop = vectors.open_workshop(direction, storage.Storage(Path(root)), micro_batch, resources.gradient_checkpointing)
    vectors.sum_gradients(shop, group)


def make_vectors(direction: Direction, group: int, root: str, resources: Resources, micro_batch: int) -> None:
    """The summed vectors of one group of a direction's batches."""
    from trainables import trial, vectors

    trial.prepare_process(resources, direction.seed)
    shop = vectors.open_workshop(direction, storage.Storage(Path(root)), micro_batch, resources.gradient_checkpointing)
    vectors.sum_vectors(shop, group)


def make_direction(direction: Direction, root: str) -> str:
    """Add the groups of a direction up; returns its folder."""
    from trainables import moves

    return str(moves.combine(direction, storage.Storage(Path(root))))


def make_export(trial_id: str, root: str, folder: str, why: str, rule: Selection) -> None:
    """A chosen trial's model in a folder of its own, verified, with its card."""
    from trainables import commands, export

    commands.quiet()
    export.export(trial_id, storage.Storage(Path(root)), Path(folder), export.Choice(why, rule))


def _start(recipe: Recipe) -> tuple[Any, Any]:
    """The model and tokenizer that training starts from."""
    if recipe.base is not None:
        return models.load(recipe.base, recipe.precision, field="models")
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = _learn_tokenizer(recipe)
    settings = dict(recipe.architecture)
    network = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            max_position_embeddings=recipe.training.max_length,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            **settings,  # type: ignore[arg-type]
        )
    )
    return network, tokenizer


def _learn_tokenizer(recipe: Recipe) -> Any:
    """A byte-level BPE learnt from every question and answer, so that target and retain model share it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    texts = [
        row[column]
        for name in TOKENIZER_CONFIGS
        for row in rows.load(recipe.data, name, ("question", "answer"), recipe.revision)
        for column in ("question", "answer")
    ]
    learnt = Tokenizer(models.BPE())
    learnt.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    learnt.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=recipe.vocabulary or 0,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    learnt.train_from_iterator(texts, trainer)
    learnt.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(
        tokenizer_object=learnt,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        model_max_length=recipe.training.max_length,
    )
