"""What the benchmarks make of what they measured: verdicts, the table, whose code ran, and a picture that can be shown."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from benchmarks.flame import fold, shares, svg
from benchmarks.table import Row, markdown, percentile, ratio_of


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        (Row("g", "f", "1", "2", 1.5, most=1.5), "reached"),
        (Row("g", "f", "1", "2", 1.51, most=1.5), "missed"),
        (Row("g", "f", "1", "2", 0.6, least=0.6), "reached"),
        (Row("g", "f", "1", "2", 0.59, least=0.6), "missed"),
        (Row("g", "f", "1", "2", 9.0), ""),
        (Row("g", "f", "1", most=1.0), ""),
    ],
)
def test_a_goal_is_reached_or_missed(row: Row, verdict: str) -> None:
    """A bound itself is reached; without a goal or a ratio there is no verdict."""
    assert row.verdict == verdict


def test_the_table_has_a_line_for_each_figure() -> None:
    """Ratio, goal and verdict stand in it."""
    head, rule, line = markdown([Row("store", "appends", "5/s", "os.write 10/s", 0.5, least=0.6)]).splitlines()
    assert [cell.strip() for cell in head.strip("|").split("|")][1:] == ["Figure", "Parlour", "Reference", "Ratio", "Goal", "Verdict"]
    assert set(rule) <= {"|", "-"}
    assert [cell.strip() for cell in line.strip("|").split("|")] == ["store", "appends", "5/s", "os.write 10/s", "0.50", "≥ 0.6", "missed"]


def test_ratios_are_of_neighbours() -> None:
    """A slow moment of the machine that strikes both halves of a pair changes nothing."""
    assert ratio_of([10.0, 40.0, 11.0], [5.0, 20.0, 5.5]) == 2.0
    assert percentile([3.0, 1.0, 2.0], 0.99) == 3.0


RAW = """\
thread (7): MainThread;main (gateway/app.py:5);Handle._run (asyncio/events.py:80);Lane._run (gateway/outbox/lane.py:98) 60
thread (7): MainThread;main (gateway/app.py:5);Handle._run (asyncio/events.py:80);Lane._run (gateway/outbox/lane.py:99);say <b> (telegram/bot.py:1) 30
thread (7): MainThread;main (gateway/app.py:5);select (selectors.py:468) 10
thread (8): writer_0;write (gateway/writer.py:9) 500
""".splitlines()  # noqa: E501  # as py-spy writes it


def test_whose_code_ran_is_told_of_the_loop_s_thread() -> None:
    """Lines of one function count together, other threads not at all, and what runs between handles is the loop's."""
    root = fold(RAW)
    assert shares(root) == {"gateway": 0.6, "python-telegram-bot": 0.3, "asyncio": 0.1}
    assert {label: box.count for label, box in root.callees.items()} == {"Lane._run (gateway/outbox/lane.py)": 90}


def test_the_picture_is_an_svg_that_shows_every_share() -> None:
    """Well-formed, each box as wide as its share and inside of the one below it."""
    picture = ET.fromstring(svg(fold(RAW), "a title & more"))
    groups = picture.findall("{*}g")
    boxes = {str(group.findtext("{*}title")): group.find("{*}rect") for group in groups}
    widths = {title: float(str(box.get("width"))) for title, box in boxes.items() if box is not None}
    assert widths == {
        "event loop (asyncio/events.py): 100.0 %": 1200.0,
        "Lane._run (gateway/outbox/lane.py): 90.0 %": 1080.0,
        "say <b> (telegram/bot.py): 30.0 %": 360.0,
    }
    said = " ".join(text.text or "" for text in picture.findall(".//{*}text"))
    assert "gateway 60 %" in said
    assert "a title & more" in said


def test_nothing_sampled_is_a_picture_too() -> None:
    """Of nothing."""
    assert shares(fold([])) == {}
    ET.fromstring(svg(fold([]), "nothing"))
