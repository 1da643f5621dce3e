"""What an evaluation says of how far it is."""

from trainables.inference.progress import Counter, report_progress_to


def test_a_count_does_not_begin_again_with_the_next_part() -> None:
    """Of answers on one set of rows, then on another; generations are counted apart."""
    said: list[tuple[str, int, int]] = []
    with report_progress_to(lambda *given: said.append(given)):
        for what, total in (("answers", 2), ("generations", 1), ("answers", 3)):
            Counter(what, total).add(total)
    assert [one for one in said if one[0] == "answers"] == [
        ("answers", 0, 2),
        ("answers", 2, 2),
        ("answers", 2, 5),
        ("answers", 5, 5),
    ]
    assert said[2:4] == [("generations", 0, 1), ("generations", 1, 1)]
