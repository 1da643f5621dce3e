"""The rows of a sweep's splits, checked and fingerprinted; the name of fictional ones is a hash of their settings."""

from __future__ import annotations

from platform.plan.models import ModelRecipes, absolute_path
from search_spaces.schema.sweep import FILES, Sweep
from trainables import benchmarks as kinds
from trainables.benchmarks.own import model_answers, row_files
from trainables.common import typed_paths
from trainables.common.errors import InputError, closest
from trainables.config.ids import digest
from trainables.config.settings import FICTIONAL, Benchmark
from trainables.storage.folder_storage import Storage

OWN = (
    "type python -m platform.sweep own --set target=DIR_OR_HUB_ID --set forget=FILE [--set retain=FILE --set eval=FILE]"
)
"""What to type for a model and rows of your own."""


def resolve_benchmark(sweep: Sweep, split: str, store: Storage) -> Benchmark:
    """Return the benchmark of one split, its rows checked and fingerprinted. Raises InputError."""
    kind = kinds.find(sweep.benchmark.name)
    chosen = sweep.benchmark.model_copy(update={"split": split, "sources": _list_sources(sweep, split, store)})
    kind.check_settings(chosen)
    if sweep.fictional is not None and chosen.data == Benchmark().data:
        made = [f"forget{percent:02d}" for percent in sweep.fictional.forget_percent]
        if split not in made:
            raise InputError(f"benchmark.split: the fictional authors have no '{split}'; {closest(split, made)}")
        from trainables.data.fictional import VERSION

        key = digest({"version": VERSION, **sweep.fictional.model_dump(mode="json")})[:12]
        return chosen.model_copy(update={"data": str(store.data(key)), "fingerprint": f"{FICTIONAL}{key}"})
    if typed_paths.is_folder(chosen.data):
        chosen = chosen.model_copy(update={"data": absolute_path(chosen.data)})
    kind.check_rows(chosen)
    return chosen.model_copy(update={"fingerprint": kind.fingerprint(chosen)})


def _place_answers(sweep: Sweep, store: Storage) -> str:
    """Return the file of the target model's answers to neutral prompts."""
    recipes = ModelRecipes(sweep, store, sweep.benchmark)
    asked = recipes.find_model(recipes.kind.TARGET), sweep.benchmark.template, sweep.resources.precision
    return str(store.data(model_answers.answers_id(*asked)) / model_answers.FILE)


def _list_sources(sweep: Sweep, split: str, store: Storage) -> tuple[str, ...]:
    """Return where further parts of the data are, local ones as absolute paths. Raises InputError."""
    at = dict(source.split("=", 1) for source in sweep.benchmark.sources)
    given = {name: place for name in FILES if (place := getattr(sweep, name)) is not None}
    if sweep.benchmark.name == "own":
        if place := given.pop("requests", None):
            given |= row_files.list_requests(place)[split]
        at |= given
        known = {"target": sweep.target or sweep.models, **at}
        missing = [name for name in ("target", "forget") if not known.get(name)]
        if missing:
            raise InputError(f"{', '.join(missing)}: not given; {OWN}")
        auto, _, further = at.get("retain", model_answers.AUTO).partition(",")
        if auto == model_answers.AUTO:
            at |= {model_answers.ANSWERS: _place_answers(sweep, store), "retain": further}
    elif named := [*given, *(["baseline"] if sweep.baseline else [])]:
        raise InputError(f"{', '.join(named)}: sweep {sweep.name} has published rows; on rows of your own: {OWN}")
    here = {part: absolute_path(place) if typed_paths.exists(place) else place for part, place in at.items() if place}
    return tuple(f"{part}={place}" for part, place in sorted(here.items()))
