"""The rows of a sweep's splits: checked, found and fingerprinted; made-up ones named by what they are made from."""

from __future__ import annotations

from platform.plan.models import absolute
from search_spaces.schema.sweep import FILES, Fictional, Sweep
from trainables import benchmarks as kinds
from trainables.common import paths
from trainables.common.errors import InputError, closest
from trainables.config.ids import digest
from trainables.config.settings import FICTIONAL, Benchmark
from trainables.storage.base import Storage

OWN = (
    "type python -m platform.sweep own --set target=DIR_OR_HUB_ID --set forget=FILE --set retain=FILE [--set eval=FILE]"
)
"""How a model and rows of one's own are given."""


def benchmark(sweep: Sweep, split: str, store: Storage) -> Benchmark:
    """The benchmark of one split, its rows checked and fingerprinted."""
    kind = kinds.find(sweep.benchmark.name)
    chosen = sweep.benchmark.model_copy(update={"split": split, "sources": _sources(sweep)})
    kind.check_settings(chosen)
    if sweep.fictional is not None and chosen.data == Benchmark().data:
        _check_fictional(sweep.fictional, split)
        key = fictional_key(sweep.fictional)
        return chosen.model_copy(update={"data": str(store.data(key)), "fingerprint": f"{FICTIONAL}{key}"})
    if paths.is_folder(chosen.data):
        chosen = chosen.model_copy(update={"data": absolute(chosen.data)})
    kind.check_rows(chosen)
    return chosen.model_copy(update={"fingerprint": kind.fingerprint(chosen)})


def _check_fictional(fictional: Fictional, split: str) -> None:
    made = [f"forget{percent:02d}" for percent in fictional.forget_percent]
    if split not in made:
        raise InputError(f"benchmark.split: the fictional authors have no '{split}'; {closest(split, made)}")


def fictional_key(fictional: Fictional) -> str:
    """Twelve hex digits that name the made-up rows."""
    from trainables.data.fictional import VERSION

    return digest({"version": VERSION, **fictional.model_dump(mode="json")})[:12]


def forget_rows(sweep: Sweep, benchmark: Benchmark, max_length: int) -> int | None:
    """How many rows there are to forget, also of fictional authors that are not made yet; None: nobody knows."""
    made = sweep.fictional
    if made is not None and not paths.is_folder(benchmark.data):
        return made.questions * (made.authors * int(benchmark.split.removeprefix("forget")) // 100)
    return kinds.find(benchmark.name).size_estimate(benchmark, max_length).points


def _sources(sweep: Sweep) -> tuple[str, ...]:
    """Where further parts of the data are, what is here with its whole path. Raises InputError: see OWN."""
    at = dict(source.split("=", 1) for source in sweep.benchmark.sources)
    given = {name: place for name in FILES if (place := getattr(sweep, name)) is not None}
    if sweep.benchmark.name == "own":
        at |= given
        known = {"target": sweep.target or sweep.models, **at}
        missing = [name for name in ("target", "forget", "retain") if not known.get(name)]
        if missing:
            raise InputError(f"{', '.join(missing)}: not given; {OWN}")
    elif given:
        raise InputError(f"{', '.join(given)}: sweep {sweep.name} has published rows; on rows of your own: {OWN}")
    here = {part: absolute(place) if paths.exists(place) else place for part, place in at.items()}
    return tuple(f"{part}={place}" for part, place in sorted(here.items()))
