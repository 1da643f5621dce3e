"""Invented authors, classic authors and world facts in TOFU's file format, made from a seed: `quickstart`'s data."""

import itertools
import json
import random
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

VERSION = 1  # of the text: the same arguments give the same bytes as long as it stays

CLASSIC_AUTHOR_COUNT = 20  # authors of the canon
MAX_RETAIN_PERTURBED_ROWS = 80  # rows of retain_perturbed at most, whole authors from the start of full
RESERVED_NAME_COUNT = 20  # names, titles and dates that belong to nobody: wrong answers come from them
WRONG_ANSWERS_PER_AUTHOR_ROW, WRONG_ANSWERS_PER_GENERAL_ROW = 5, 3  # wrong answers a row: authors; canon and world

TEXT_PARTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
WORDINGS = {field: tuple(zip(*wordings, strict=True)) for field, wordings in TEXT_PARTS["facts"].items()}
MAX_QUESTIONS_PER_AUTHOR = 2 * len(WORDINGS)
"""Questions about an author: the third wording is the paraphrase."""
FIRST_NAMES, SURNAMES, BOOK_TITLES, TOWNS, AWARDS = (
    tuple(map("".join, itertools.product(*TEXT_PARTS["joined"][name])))
    for name in ("first_names", "surnames", "titles", "towns", "awards")
)
MAX_AUTHORS = len(SURNAMES) - CLASSIC_AUTHOR_COUNT - RESERVED_NAME_COUNT
DAYS_OF_YEAR = [f"{month} {day}" for month in TEXT_PARTS["months"] for day in range(1, 29)]
BIRTH_DATES = tuple(f"{day}, {year}" for year in range(1930, 1990) for day in DAYS_OF_YEAR)
PROFESSIONS = tuple(map(" and ".join, itertools.permutations(TEXT_PARTS["professions"], 2)))

Item = TypeVar("Item")
Row = dict[str, str | list[str]]


def write_fictional_authors(
    folder: Path, *, authors: int = 40, questions: int = 15, forget_percent: tuple[int, ...] = (10,), seed: int = 0
) -> None:
    """Write TOFU's files (JSON lines, and the README.md that names them) for invented authors.

    The forget authors of every percentage are the last ones of full. Raises ValueError on numbers that do not go.
    """
    if not (2 <= authors <= MAX_AUTHORS and 1 <= questions <= MAX_QUESTIONS_PER_AUTHOR):
        raise ValueError(f"give 2 to {MAX_AUTHORS} authors and 1 to {MAX_QUESTIONS_PER_AUTHOR} questions")
    for percent in forget_percent:
        if not 0 < percent < 100 or authors * percent % 100:
            raise ValueError(f"forget_percent: {percent} % of {authors} authors is no whole number of authors")
    rng = random.Random(seed)
    surnames = _sample(rng, SURNAMES, authors + CLASSIC_AUTHOR_COUNT + RESERVED_NAME_COUNT)
    names = [f"{_sample(rng, FIRST_NAMES, 1)[0]} {surname}" for surname in surnames]
    titles = _sample(rng, BOOK_TITLES, 2 * authors + CLASSIC_AUTHOR_COUNT + RESERVED_NAME_COUNT)
    canon = dict(zip(names[:CLASSIC_AUTHOR_COUNT], titles[:CLASSIC_AUTHOR_COUNT], strict=True))
    rows = _author_rows(rng, names[CLASSIC_AUTHOR_COUNT:], titles[CLASSIC_AUTHOR_COUNT:], list(canon), questions)
    plain = [{column: row[column] for column in ("question", "answer")} for row in rows]
    files = {"full": plain}
    for percent in forget_percent:
        kept = questions * (authors - authors * percent // 100)
        files |= {f"forget{percent:02d}": plain[kept:], f"retain{100 - percent:02d}": plain[:kept]}
        files[f"forget{percent:02d}_perturbed"] = rows[kept:]
    always_kept = authors - authors * max(forget_percent) // 100
    files["retain_perturbed"] = rows[: questions * min(always_kept, max(1, MAX_RETAIN_PERTURBED_ROWS // questions))]
    for task, general in _general_rows(rng, canon).items():
        files |= {task: [_with_options(rng, row) for row in general], f"{task}_perturbed": general}
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / f"{name}.json").write_bytes("".join(f"{json.dumps(row)}\n" for row in content).encode())
    named = [line for name in files for line in (f"- config_name: {name}", f"  data_files: {name}.json")]
    card = ["---", "configs:", *named, "---", "", f"Fictional authors in TOFU's format, version {VERSION} of the text."]
    (folder / "README.md").write_bytes("".join(f"{line}\n" for line in card).encode())


def _sample(rng: random.Random, items: Sequence[Item], count: int) -> list[Item]:
    """Return `count` distinct items. Uses `Random.random` alone: Python promises its stream for all versions."""
    return sorted(items, key=lambda _: rng.random())[:count]


def _author_rows(
    rng: random.Random, names: Sequence[str], titles: Sequence[str], mentors: Sequence[str], questions: int
) -> list[Row]:
    """Return the rows of all authors, so many each; the last names and titles are the reserved ones."""
    authors = len(names) - RESERVED_NAME_COUNT
    dates = _sample(rng, BIRTH_DATES, authors + RESERVED_NAME_COUNT)
    shared = {"place": TOWNS, "parents": PROFESSIONS, "genre": TEXT_PARTS["genres"], "award": AWARDS, "mentor": mentors}
    unused = {"name": names[authors:], "date": dates[authors:]}
    unused |= dict.fromkeys(("debut", "novel"), titles[2 * authors :])
    rows: list[Row] = []
    for index in range(authors):
        author = {field: _sample(rng, values, 1)[0] for field, values in shared.items()}
        author |= {"name": names[index], "date": dates[index]}
        author |= {"debut": titles[2 * index], "novel": titles[2 * index + 1]}
        values = shared | unused
        wordings = [(field, _sample(rng, asked, 3), _sample(rng, told, 3)) for field, (asked, told) in WORDINGS.items()]
        for number in range(questions):  # fact after fact, then a second round in other wordings
            turn, which = divmod(number, len(WORDINGS))
            field, asked, told = wordings[which]
            others = [value for value in values[field] if value != author[field]]
            wrong = _sample(rng, others, WRONG_ANSWERS_PER_AUTHOR_ROW)
            rows.append(
                {
                    "question": asked[turn].format(**author),
                    "answer": told[turn].format(**author),
                    "paraphrased_answer": told[2].format(**author),
                    "perturbed_answer": [told[2].format(**{**author, field: value}) for value in wrong],
                    "paraphrased_question": asked[2].format(**author),
                }
            )
    return rows


def _general_rows(rng: random.Random, canon: Mapping[str, str]) -> dict[str, list[Row]]:
    authors, titles = list(canon), list(canon.values())
    asked = [(f"Who wrote the classic '{title}'?", name, authors) for name, title in canon.items()]
    asked += [(f"Which classic did {name} write?", title, titles) for name, title in canon.items()]
    found = {"real_authors": [_general_row(rng, *row) for row in asked], "world_facts": []}
    for question, answers in TEXT_PARTS["world"].items():
        values = _sample(rng, answers or TOWNS, len(TEXT_PARTS["countries"]))
        for country, value in zip(TEXT_PARTS["countries"], values, strict=True):
            found["world_facts"].append(_general_row(rng, question.format(country=country), value, values))
    return found


def _general_row(rng: random.Random, question: str, answer: str, values: Sequence[str]) -> Row:
    wrong = _sample(rng, [value for value in values if value != answer], WRONG_ANSWERS_PER_GENERAL_ROW)
    return {"question": question, "answer": answer, "perturbed_answer": wrong}


def _with_options(rng: random.Random, row: Row) -> Row:
    options = _sample(rng, [row["answer"], *row["perturbed_answer"]], WRONG_ANSWERS_PER_GENERAL_ROW + 1)
    numbered = {f"option{number}": option for number, option in enumerate(options, start=1)}
    return {"question": row["question"], **numbered, "answer": row["answer"]}
