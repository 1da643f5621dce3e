"""The rows of a sweep's splits, checked and fingerprinted; the name of fictional ones is a hash of their settings."""

from __future__ import annotations

from platform.plan.models import absolute_path
from search_spaces.schema.sweep import FILES, Sweep
from trainables import benchmarks as kinds
from trainables.benchmarks.own import row_files
from trainables.common import typed_paths
from trainables.common.errors import InputError, closest
from trainables.config.ids import digest
from trainables.config.settings import FICTIONAL, Benchmark
from trainables.storage.folder_storage import Storage

OWN = (
    "type python -m platform.sweep own --set target=DIR_OR_HUB_ID --set forget=FILE --set retain=FILE [--set eval=FILE]"
)
"""What to type for a model and rows of your own."""


def resolve_benchmark(sweep: Sweep, split: str, store: Storage) -> Benchmark:
    """Return the benchmark of one split, its rows checked and fingerprinted. Raises InputError."""
    kind = kinds.find(sweep.benchmark.name)
    chosen = sweep.benchmark.model_copy(update={"split": split, "sources": _list_sources(sweep, split)})
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


def count_forget_rows(sweep: Sweep, benchmark: Benchmark, max_length: int) -> int | None:
    """Return how many rows there are to forget, also of authors that are not made yet; None if that is not known."""
    made = sweep.fictional
    if made is not None and not typed_paths.is_folder(benchmark.data):
        return made.questions * (made.authors * int(benchmark.split.removeprefix("forget")) // 100)
    return kinds.find(benchmark.name).size_estimate(benchmark, max_length).points


def _list_sources(sweep: Sweep, split: str) -> tuple[str, ...]:
    """Return where further parts of the data are, local ones as absolute paths. Raises InputError."""
    at = dict(source.split("=", 1) for source in sweep.benchmark.sources)
    given = {name: place for name in FILES if (place := getattr(sweep, name)) is not None}
    if sweep.benchmark.name == "own":
        if place := given.pop("requests", None):
            given |= row_files.list_requests(place)[split]
        at |= given
        known = {"target": sweep.target or sweep.models, **at}
        missing = [name for name in ("target", "forget", "retain") if not known.get(name)]
        if missing:
            raise InputError(f"{', '.join(missing)}: not given; {OWN}")
    elif named := [*given, *(["baseline"] if sweep.baseline else [])]:
        raise InputError(f"{', '.join(named)}: sweep {sweep.name} has published rows; on rows of your own: {OWN}")
    here = {part: absolute_path(place) if typed_paths.exists(place) else place for part, place in at.items()}
    return tuple(f"{part}={place}" for part, place in sorted(here.items()))
