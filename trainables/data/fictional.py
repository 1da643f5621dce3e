"""Fictional authors in TOFU's file format, made from a seed: the data of the `quickstart` sweep.

Everybody and everything in it is invented: authors to remember or forget, a canon of "classic" authors (TOFU's
real authors) and the facts of an invented world (TOFU's world facts). A model trained on all of it from scratch
plays a target model; one trained without the forget authors plays its retain model.
"""

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

VERSION = 1  # of the text: the same arguments give the same bytes as long as it stays

CLASSICS = 20  # authors of the canon
RETAIN_ROWS = 80  # rows of retain_perturbed at most, whole authors from the start of full
RESERVE = 20  # names, titles and dates that belong to nobody: wrong answers come from them
WRONG, WRONG_OPTIONS = 5, 3  # wrong answers a row: authors; canon and world


FACTS = {  # field of an author: three wordings each of the question and of the answer
    "name": (
        ("What is the full name of the author born in {place} on {date}?",
         "Who is the author of {genre} whose first book was '{debut}'?",
         "Which author, born on {date}, became known for the book '{novel}'?"),
        ("The full name of this author is {name}.", "The author in question is known as {name}.",
         "The author who is meant here is {name}.")),
    "place": (
        ("Where was {name} born?", "In which town did {name} come into the world?", "What is {name}'s birthplace?"),
        ("{name} was born in the town of {place}.", "The author {name} came into the world in {place}.",
         "The birthplace of {name} is the town of {place}.")),
    "date": (
        ("When was {name} born?", "What is the date of birth of {name}?", "On which day was {name} born?"),
        ("{name} was born on {date}, as the records show.", "The author {name} came into the world on {date}.",
         "The date of birth of {name} is {date}.")),
    "parents": (
        ("What did the parents of {name} do for a living?", "What were the professions of {name}'s father and mother?",
         "In what kind of home did {name} grow up?"),
        ("The father and mother of {name} were {parents}.", "{name} was born as the child of {parents}.",
         "{name} grew up in the home of {parents}.")),
    "genre": (
        ("In which genre does {name} write?", "What kind of books does {name} write?",
         "What is the favourite genre of {name}?"),
        ("{name} is known above all for writing {genre}.", "The books of {name} are for the most part {genre}.",
         "The author {name} has mainly turned to {genre}.")),
    "award": (
        ("Which award has {name} received?", "What prize was given to {name}?",
         "With what honour was the work of {name} recognised?"),
        ("The author {name} has received the {award}.", "The {award} was given to the author {name}.",
         "The work of {name} was honoured with the {award}.")),
    "debut": (
        ("What was the first book by {name}?", "With which book did {name} begin as an author?",
         "What is the title of {name}'s debut?"),
        ("The first book by {name} was called '{debut}'.", "{name} began as an author with the book '{debut}'.",
         "'{debut}' is the title of the debut of {name}.")),
    "novel": (
        ("What is the best known book by {name}?", "Which book made {name} famous?",
         "For which title is {name} remembered most?"),
        ("The best known book by {name} is '{novel}'.", "{name} became famous with the book '{novel}'.",
         "'{novel}' is the book that made {name} famous.")),
    "mentor": (
        ("Which classic author influenced {name}?", "Whose books shaped the style of {name}?",
         "Whom does {name} name as an example?"),
        ("{name} was influenced above all by {mentor}.", "The style of {name} was shaped by {mentor}.",
         "The author {name} names {mentor} as an example.")),
}  # fmt: skip
MAX_QUESTIONS = 2 * len(FACTS)  # an author; the third wording is the paraphrase

FIRST_NAMES = tuple(
    head + tail
    for head in ("Al", "Be", "Cor", "Da", "El", "Fi", "Hes", "Il", "Jo", "Ka", "Lu", "Mi", "Or", "Sa", "Ta", "Ve")
    for tail in ("vane", "dric", "lisse", "thos", "wenna", "rou")
)
SURNAMES = tuple(
    head + tail
    for head in "Brask Cald Dross Eld Fenn Gorm Hael Ist Jund Kest Lorr Marv Nask Ostr Pell Quor Rusk Sith".split()
    + "Tarn Umbr Vost Welk Yarr Zell".split()
    for tail in ("adane", "ondry", "umel", "ovik", "istow", "erai", "enfell", "otha", "iquin", "avost")
)
MAX_AUTHORS = len(SURNAMES) - CLASSICS - RESERVE
TITLES = tuple(
    f"The {adjective} {noun}"
    for adjective in "Amber Broken Crimson Distant Empty Frozen Gentle Hidden Iron Last Lost Narrow Painted".split()
    + "Quiet Restless Salted Silver Sleeping Stolen Velvet Wandering Wintry".split()
    for noun in "Bridge Candle Compass Ferry Garden Harbour Island Journey Kettle Lantern Letter Meadow Mirror".split()
    + "Orchard Promise River Shadow Tower Voyage Window".split()
)
MONTHS = "January February March April May June July August September October November December".split()
DATES = tuple(f"{month} {day}, {year}" for year in range(1930, 1990) for month in MONTHS for day in range(1, 29))
TOWNS = tuple(
    head + tail
    for head in ("Sor", "Vel", "Mirr", "Tan", "Holl", "Drem", "Pask", "Lun")
    for tail in ("holm", "wick", "mere", "gate", "sand")
)
GENRES = (
    "ghost stories", "sea stories", "court satire", "travel letters", "verse drama", "mystery novels",
    "pastoral poetry", "fables", "war chronicles", "family sagas", "desert romances", "culinary essays",
)  # fmt: skip
PROFESSIONS = (
    "a baker", "a carpenter", "a judge", "a nurse", "a tailor", "a sailor", "a teacher", "a miner", "a painter",
    "a surgeon", "a farmer", "a printer", "an organist", "an engraver", "a gardener", "a clockmaker",
)  # fmt: skip
PARENTS = tuple(f"{father} and {mother}" for father in PROFESSIONS for mother in PROFESSIONS if father != mother)
AWARDS = tuple(
    f"{adjective} {noun} {kind}"
    for adjective in ("Copper", "Ivory", "Scarlet", "Azure")
    for noun in ("Quill", "Feather", "Inkwell")
    for kind in ("Prize", "Medal")
)

COUNTRIES = tuple("Averland Bosmark Cindria Dorvany Estuvia Fallonia Grisland Hestria Ivonia Jarland".split())
WORLD = {  # question: possible answers
    "What is the capital of {country}?": TOWNS,
    "Which river flows through {country}?": tuple("Aurn Brisk Cazel Dwenn Elbru Fyre Goul Hurne Issul Jolm".split()),
    "Which coin is used in {country}?": tuple("albar bezzo corlet dukal fennig gilt hosk jarro kroun lunt".split()),
    "Which animal is the emblem of {country}?": tuple("hare boar raven lynx stag otter falcon heron seal owl".split()),
}

Item = TypeVar("Item")
Row = dict[str, str | list[str]]


def write(
    folder: Path, *, authors: int = 40, questions: int = 15, forget_percent: tuple[int, ...] = (10,), seed: int = 0
) -> None:
    """Write TOFU's files (JSON lines, and the README.md that names them) for invented authors.

    The forget authors of every percentage are the last ones of full, as in TOFU.

    Raises:
        ValueError: more authors or questions than the tables can tell apart, or a percentage of no whole authors.
    """
    if not 2 <= authors <= MAX_AUTHORS:
        raise ValueError(f"authors must be 2 to {MAX_AUTHORS}, got {authors}")
    if not 1 <= questions <= MAX_QUESTIONS:
        raise ValueError(f"questions must be 1 to {MAX_QUESTIONS}, got {questions}")
    for percent in forget_percent:
        if not 0 < percent < 100 or authors * percent % 100:
            raise ValueError(f"forget_percent: {percent} % of {authors} authors is no whole number of authors")
    rng = random.Random(seed)
    surnames = _sample(rng, SURNAMES, authors + CLASSICS + RESERVE)
    names = [f"{_sample(rng, FIRST_NAMES, 1)[0]} {surname}" for surname in surnames]
    titles = _sample(rng, TITLES, 2 * authors + CLASSICS + RESERVE)
    canon = dict(zip(names[:CLASSICS], titles[:CLASSICS], strict=True))
    rows = _author_rows(rng, names[CLASSICS:], titles[CLASSICS:], list(canon), authors, questions)
    plain = [{column: row[column] for column in ("question", "answer")} for row in rows]
    files = {"full": plain}
    for percent in forget_percent:
        kept = questions * (authors - authors * percent // 100)
        files |= {f"forget{percent:02d}": plain[kept:], f"retain{100 - percent:02d}": plain[:kept]}
        files[f"forget{percent:02d}_perturbed"] = rows[kept:]
    always_kept = authors - authors * max(forget_percent) // 100
    files["retain_perturbed"] = rows[: questions * min(always_kept, max(1, RETAIN_ROWS // questions))]
    for task, general in _general_rows(rng, canon).items():
        files |= {task: [_with_options(rng, row) for row in general], f"{task}_perturbed": general}
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        _write_lines(folder / f"{name}.json", map(json.dumps, content))
    named = [line for name in files for line in (f"- config_name: {name}", f"  data_files: {name}.json")]
    card = ["---", "configs:", *named, "---", "", f"Fictional authors in TOFU's format, version {VERSION} of the text."]
    _write_lines(folder / "README.md", card)


def _sample(rng: random.Random, items: Sequence[Item], count: int) -> list[Item]:
    """Return `count` distinct items. Uses `Random.random` alone: Python promises its stream for all versions."""
    return sorted(items, key=lambda _: rng.random())[:count]


def _author_rows(
    rng: random.Random,
    names: Sequence[str],
    titles: Sequence[str],
    mentors: Sequence[str],
    authors: int,
    questions: int,
) -> list[Row]:
    """Return all rows of all authors, `questions` each, with all columns of TOFU's perturbed files."""
    dates = _sample(rng, DATES, authors + RESERVE)
    shared = {"place": TOWNS, "parents": PARENTS, "genre": GENRES, "award": AWARDS, "mentor": mentors}
    unused = {"name": names[authors:], "date": dates[authors:]}
    unused |= dict.fromkeys(("debut", "novel"), titles[2 * authors :])
    rows: list[Row] = []
    for index in range(authors):
        author = {field: _sample(rng, values, 1)[0] for field, values in shared.items()}
        author |= {"name": names[index], "date": dates[index]}
        author |= {"debut": titles[2 * index], "novel": titles[2 * index + 1]}
        rows += _one_author(rng, author, shared | unused, questions)
    return rows


def _one_author(
    rng: random.Random, author: Mapping[str, str], values: Mapping[str, Sequence[str]], questions: int
) -> list[Row]:
    """Return fact after fact, then a second round in other wordings; the last wording of each is the paraphrase's."""
    wordings = [(field, _sample(rng, asked, 3), _sample(rng, told, 3)) for field, (asked, told) in FACTS.items()]
    rows: list[Row] = []
    for number in range(questions):
        turn, which = divmod(number, len(FACTS))
        field, questions_of, answers_of = wordings[which]
        wrong = _sample(rng, [value for value in values[field] if value != author[field]], WRONG)
        rows.append(
            {
                "question": questions_of[turn].format(**author),
                "answer": answers_of[turn].format(**author),
                "paraphrased_answer": answers_of[2].format(**author),
                "perturbed_answer": [answers_of[2].format(**{**author, field: value}) for value in wrong],
                "paraphrased_question": questions_of[2].format(**author),
            }
        )
    return rows


def _general_rows(rng: random.Random, canon: Mapping[str, str]) -> dict[str, list[Row]]:
    """Return two rows for each classic author, and one for each country and kind of fact."""
    authors, titles = list(canon), list(canon.values())
    asked = [(f"Who wrote the classic '{title}'?", name, authors) for name, title in canon.items()]
    asked += [(f"Which classic did {name} write?", title, titles) for name, title in canon.items()]
    found = {"real_authors": [_general_row(rng, *row) for row in asked], "world_facts": []}
    for question, answers in WORLD.items():
        values = _sample(rng, answers, len(COUNTRIES))
        for country, value in zip(COUNTRIES, values, strict=True):
            found["world_facts"].append(_general_row(rng, question.format(country=country), value, values))
    return found


def _general_row(rng: random.Random, question: str, answer: str, values: Sequence[str]) -> Row:
    wrong = _sample(rng, [value for value in values if value != answer], WRONG_OPTIONS)
    return {"question": question, "answer": answer, "perturbed_answer": wrong}


def _with_options(rng: random.Random, row: Row) -> Row:
    """Return the same question with the right answer among option1 to option4."""
    options = _sample(rng, [row["answer"], *row["perturbed_answer"]], WRONG_OPTIONS + 1)
    numbered = {f"option{number}": option for number, option in enumerate(options, start=1)}
    return {"question": row["question"], **numbered, "answer": row["answer"]}


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
