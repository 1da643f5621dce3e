"""Making what trials share: data, models and reference evaluations, each under the hash of what it is made from."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from trainables import benchmarks
from trainables.benchmarks import evaluation
from trainables.benchmarks.base import TARGET_IS_OWN_REFERENCE
from trainables.benchmarks.local_paths import localize_paths
from trainables.benchmarks.own import model_answers, row_files
from trainables.common import cli, process_identity, provenance
from trainables.config.settings import Benchmark, Model, Resources
from trainables.config.shared_artifacts import ModelRecipe, TaskVectorRecipe, evaluation_id
from trainables.data import raw_rows
from trainables.inference.progress import report_progress_to
from trainables.storage import atomic_files
from trainables.storage.file_names import RESULT, ROWS
from trainables.storage.folder_storage import Storage
from trainables.storage.opening import open_storage_unchecked
from trainables.training import model_files
from trainables.trial.progress import make_shared_progress_file

TOKENIZER_DATA_CONFIGS = ("full", "real_authors", "world_facts")
QUESTION_COLUMNS = ("question", "answer")


def ensure_recipe_model(recipe: ModelRecipe, root: str, gpus: float = 0, micro_batch: int | None = None) -> str:
    """Train the model of a recipe unless it is there; return its folder."""
    store = open_storage_unchecked(root)
    recipe, folder = localize_paths(recipe, store), store.model(recipe.id())
    store.fetch(folder)
    if folder.is_dir():
        store.push(folder)
        return str(folder)
    from trainables.training import engine, loop
    from trainables.training.runtime import choose_process_token_budget, prepare_process
    from trainables.trial import setup

    resources = Resources(cpus=recipe.cpus, gpus=gpus, precision=recipe.precision)
    device = prepare_process(resources, recipe.seed)
    network, tokenizer = _start(recipe)
    asked = Benchmark(name="tofu", template=recipe.template, dialect=recipe.dialect)
    pairs = [(row["question"], row["answer"]) for row in _load_rows(recipe, recipe.configs)]
    encoder = benchmarks.get_benchmark("tofu").make_encoder(asked, tokenizer)
    examples = encoder.encode(pairs, max_length=recipe.training.max_length)
    network.to(device)
    with make_shared_progress_file(f"the model for {recipe.configs[0]}", recipe.id(), store) as progress:
        if recipe.answers:
            progress.note_event({"phase": "evaluation"})
            with report_progress_to(progress.note_count):
                budget = choose_process_token_budget(resources, network)
                said = model_answers.answer_neutral_prompts(network, encoder, budget)
            answers = encoder.encode(said, max_length=recipe.training.max_length)
            examples += [row.keep_first_labels(model_answers.ANSWER_TOKENS) for row in answers]  # no end where cut off
        task = setup.make_fine_tuning_task(examples, recipe.training, tokenizer, recipe.seed, micro_batch, recipe.clip)
        attention = recipe.base.attention if recipe.base else "sdpa"
        training = engine.create_engine(network.train(), recipe.training, resources, attention)
        for entry in loop.train_steps(training, task):
            progress.note_event({"phase": "training", "step": entry["step"], "steps": task.count_steps()})
    made = {**recipe.model_dump(mode="json"), **provenance.collect_provenance()}
    model_files.save_model(training.module, tokenizer, folder, made)
    atomic_files.write_recipe_file(folder, made)
    training.close()
    store.push(folder)
    return str(folder)


def ensure_evaluation(model: Model, benchmark: Benchmark, retain: str | None, root: str, resources: Resources) -> None:
    """Evaluate a model as the trials it is compared with, and keep that in the storage, unless that was done.

    `retain`: the id of the evaluation that it is measured against, or ITSELF.
    """
    from trainables.training.runtime import choose_process_token_budget, prepare_process

    store = open_storage_unchecked(root)
    subject, on = localize_paths(model, store), localize_paths(benchmark, store)
    key = evaluation_id(subject, on, retain, resources.precision)
    folder = store.evaluation(key)
    if store.read_evaluation(key) is not None and row_files.are_model_answers_ready(on):
        store.push(folder, changing=True)  # by another sweep while this task waited, or before Ray ran it again
        return
    device = prepare_process(resources, 0)
    reference = retain
    if retain and retain != TARGET_IS_OWN_REFERENCE:
        store.fetch(store.evaluation(retain) / RESULT)
        reference = evaluation.read_reference_evaluation(store.evaluation(retain) / RESULT, on)
    network, tokenizer = model_files.load_model_and_tokenizer(subject, resources.precision)
    network.to(device)
    with make_shared_progress_file(f"the reference evaluation on {on.split}", key, store) as progress:
        progress.note_event({"phase": "evaluation"})
        budget = choose_process_token_budget(resources, network)
        answers = Path(on.places.get(model_answers.ANSWERS_PART, store.root))  # to neutral prompts, which trials retain
        mine = model_answers.make_answers_id(subject, on.template, resources.precision)
        with report_progress_to(progress.note_count):
            if answers.parent.name == mine and not store.exists(answers):
                encoder = benchmarks.get_benchmark(on.name).make_encoder(on, tokenizer)
                model_answers.write_answers_to_neutral_prompts(answers, network, encoder, budget)
                atomic_files.write_recipe_file(answers.parent, {})
                store.push(answers.parent)
            found, records = evaluation.evaluate(network, tokenizer, on, reference, token_budget=budget)
        advice = evaluation.suggest_better_template(network, tokenizer, on, found)
    atomic_files.write_parquet_rows(folder / ROWS, records)
    result = {
        "advice": advice,
        "id": key,
        "model": subject.model_dump(mode="json"),
        **evaluation.make_evaluation_document(on, found, records),
        "metrics": found,
        "halves": benchmarks.compute_metrics_of_each_half(on, records, reference),
        **provenance.collect_provenance(),
    }
    atomic_files.write_json(folder / RESULT, result)
    store.push(folder, changing=True)


def ensure_shared_task_vector(direction: TaskVectorRecipe, root: str, resources: Resources, micro_batch: int) -> None:
    """Make a direction unless it is there; of several ranks each calls this."""
    from trainables.training.runtime import prepare_process
    from trainables.trial.direction_files import ensure_task_vector

    cli.silence_libraries()
    store = open_storage_unchecked(root)
    if resources.ranks > 1:
        fetch_once_on_each_machine(store, partial(localize_paths, direction, store))
    direction = localize_paths(direction, store)
    prepare_process(resources, direction.seed)
    ensure_task_vector(direction, store, micro_batch, resources.gradient_checkpointing)


def fetch_once_on_each_machine(store: Storage, fetch: Callable[[], object]) -> None:
    """Let the first rank of every machine fetch what all of them need, if each machine has a copy of its own."""
    from ray.train import collective

    if store.is_remote:
        if process_identity.is_first_local_rank():
            fetch()
        collective.barrier()


def _load_rows(recipe: ModelRecipe, configs: Sequence[str]) -> list[raw_rows.Row]:
    return [row for name in configs for row in raw_rows.load_rows(recipe.data, name, QUESTION_COLUMNS, recipe.revision)]


def _start(recipe: ModelRecipe) -> tuple[Any, Any]:
    """Return the model and tokenizer that training starts from."""
    if recipe.base is not None:
        return model_files.load_model_and_tokenizer(recipe.base, recipe.precision, field="models")
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = train_tokenizer(recipe)
    settings: dict[str, Any] = dict(recipe.architecture)
    configuration = LlamaConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=recipe.training.max_length,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        **settings,
    )
    return LlamaForCausalLM(configuration), tokenizer


def train_tokenizer(recipe: ModelRecipe) -> Any:
    """Return a byte-level BPE of every question and answer, so that target and retain model share it."""
    from tokenizers import ByteLevelBPETokenizer, Tokenizer
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    texts = [row[column] for row in _load_rows(recipe, TOKENIZER_DATA_CONFIGS) for column in QUESTION_COLUMNS]
    learnt = ByteLevelBPETokenizer()
    sizes = {"vocab_size": recipe.vocabulary or 0, "min_frequency": 0}
    learnt.train_from_iterator(texts, **sizes, special_tokens=["<s>", "</s>", "<pad>"], show_progress=False)
    learnt.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(learnt.to_str()),
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        model_max_length=recipe.training.max_length,
    )
