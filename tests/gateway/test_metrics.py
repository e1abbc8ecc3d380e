"""What is counted, how it is shown, and that the dashboard and the documentation speak of what there is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as classic

from channels.base import Address, Denied, Gone, Lost, NotSent, Piece, Refused, Rejected, Retry, Unknown
from gateway.httpd.exposition import Exposition
from gateway.metrics import GAUGES, UNSENT, Counter, Histogram, Metrics, Reading
from gateway.outbox.counted import counted
from tests.gateway.outbox_net import Net

ROOT = Path(__file__).parents[2]
LABELS = {each.name: set(each.labels) for each in Metrics().counters()} | {each.name: set(each.labels) for each in GAUGES}
HISTOGRAMS = {each.name for each in Metrics().histograms()}
NAMES = LABELS.keys() | HISTOGRAMS


def test_a_counter_counts_by_its_labels() -> None:
    """Each combination for itself; without labels it is there from the beginning; one that was begun is 0."""
    counter = Counter("x_total", "", "a", "b")
    counter.add("1", "2")
    counter.add("1", "2", by=2.5)
    counter.add("2", "1", by=0)
    assert counter.values == {("1", "2"): 3.5, ("2", "1"): 0}
    assert Counter("y_total", "").values == {(): 0}


@pytest.mark.parametrize(("value", "place"), [(-1, 0), (0, 0), (1, 0), (1.0001, 1), (2, 1), (2.5, 2), (float("inf"), 2)])
def test_a_histogram_puts_a_bound_below_itself(value: float, place: int) -> None:
    """As Prometheus' `le` means it."""
    histogram = Histogram("x", "", [1, 2])
    histogram.observe(value)
    assert histogram.counts.index(1) == place


def test_names_are_what_prometheus_wants() -> None:
    """Our prefix, base units, `_total` for what only grows and for nothing else, each name once, and a text."""
    kinds = [(each.name, each.text, "counter") for each in Metrics().counters()]
    kinds += [(each.name, each.text, "histogram") for each in Metrics().histograms()]
    kinds += [(each.name, each.text, each.kind) for each in GAUGES]
    assert len(kinds) == len({name for name, _, _ in kinds})
    for name, text, kind in kinds:
        assert re.fullmatch(r"(parlour|process)_[a-z_]+", name)
        assert name.endswith("_total") == (kind == "counter")
        assert not re.search(r"_(ms|milliseconds|minutes|kb|mb|mib)(_|$)", name)
        assert text.endswith(".")


@pytest.mark.parametrize("accept", ["", "text/plain;version=0.0.4", "application/openmetrics-text;version=1.0.0"])
def test_what_is_shown_can_be_read(accept: str) -> None:
    """Prometheus' own parsers find every family and every value, in both formats; labels may hold anything."""
    metrics = Metrics()
    metrics.inputs.add('a "quoted"\nname\\', "accepted", by=3)
    metrics.turn.observe(0.3)
    metrics.turn.observe(1000)
    body, kind = Exposition(metrics, lambda: [Reading(UNSENT, 7, ("web",))]).render(accept)
    text = body.decode()
    families = list((open_metrics if "openmetrics" in kind else classic)(text))
    assert {family.name for family in families} == {name.removesuffix("_total") for name in NAMES}
    samples = {(sample.name, *sorted(sample.labels.items())): sample.value for family in families for sample in family.samples}
    assert samples["parlour_inputs_total", ("channel", 'a "quoted"\nname\\'), ("result", "accepted")] == 3
    assert samples["parlour_deliveries_unsent", ("channel", "web")] == 7
    assert samples["parlour_turn_seconds_bucket", ("le", "0.5")] == 1
    assert samples["parlour_turn_seconds_bucket", ("le", "+Inf")] == samples[("parlour_turn_seconds_count",)] == 2
    assert samples[("parlour_turn_seconds_sum",)] == 1000.3


# ------------------------------------------------------------------------------------------------------------------- counted channels

HERE = Address("net", "1")


class Failing(Net):
    """Every call ends as it is told."""

    fault: BaseException | None = None

    async def edit(self, address: Address, message_id: str, piece: Piece, *, buttons: object = ()) -> None:
        if self.fault is not None:
            raise self.fault


@pytest.mark.parametrize(
    ("fault", "word"),
    [
        (None, "ok"),
        (Retry(12.5), "retry"),
        (NotSent("x"), "not_sent"),
        (Unknown("x"), "unknown"),
        (Refused("x"), "refused"),
        (Rejected("x"), "rejected"),
        (Gone("x"), "gone"),
        (Lost("x"), "lost"),
        (Denied("x"), "denied"),
        (KeyError("x"), "fault"),
    ],
)
async def test_calls_are_counted_by_their_end(fault: Exception | None, word: str) -> None:
    """And the error passes through as it is; what a network asks us to wait is added up."""
    net, metrics = Failing(), Metrics()
    net.fault = fault
    channel = counted(net, metrics)
    if fault is None:
        await channel.edit(HERE, "1", Piece("x"))
    else:
        with pytest.raises(type(fault)) as caught:
            await channel.edit(HERE, "1", Piece("x"))
        assert caught.value is fault
    assert {labels: value for labels, value in metrics.calls.values.items() if value} == {("net", "edit", word): 1}
    assert metrics.flood.values == {("net",): 12.5 if word == "retry" else 0}


async def test_a_counted_channel_is_the_channel() -> None:
    """Whatever is not a call is the channel's own, also what changes later."""
    net, metrics = Net(), Metrics()
    channel = counted(net, metrics)
    assert (channel.name, channel.limits, channel.streams) == (net.name, net.limits, net.streams)
    net.backlog = 77.0
    assert channel.backlog == 77.0
    assert channel.render("hi") == net.render("hi")
    assert await channel.send(HERE, Piece("hi"))
    assert net.visible(HERE) == ["hi"]
    assert metrics.calls.values["net", "send", "ok"] == 1


# ----------------------------------------------------------------------------------------------------------- dashboard and documentation


def expressions(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key in {"expr", "query"} and isinstance(value, str):
                yield value
            else:
                yield from expressions(value)
    elif isinstance(node, list):
        for value in node:
            yield from expressions(value)


def test_the_dashboard_shows_what_there_is() -> None:
    """Every metric in it exists, every label it asks for is one that the metric has, and every metric is in it."""
    dashboard = json.loads((ROOT / "deploy" / "grafana.json").read_text())
    labels = LABELS | {f"{name}_bucket": {"le"} for name in HISTOGRAMS}
    shown: set[str] = set()
    for expression in expressions(dashboard):
        found = re.findall(r"\b(?:parlour|process)_[a-z_]+", expression)
        shown |= set(found)
        for name in found:
            assert name in labels, expression
            asked = {one.strip() for group in re.findall(r"by \(([a-z_, ]+)\)", expression) for one in group.split(",")}
            asked |= set(re.findall(r"([a-z_]+)!?=", expression)) - {"job", "instance"}
            assert asked <= labels[name], expression
    assert shown == set(labels)


def test_each_metric_is_explained() -> None:
    """docs/operations.md has all of them in its table, and none that there is not."""
    text = (ROOT / "docs" / "operations.md").read_text()
    table = text[text.index("| metric | what it tells |") : text.index("Worth an alert")]
    told = [
        name
        for row in table.splitlines()
        for name in re.findall(r"`((?:parlour|process)_[a-z_]+)[{`]", row.split("|")[1] if "|" in row else "")
    ]
    assert sorted(told) == sorted(NAMES)
    assert set(re.findall(r"\b(?:parlour|process)_[a-z_]+\b", text)) <= NAMES


def test_the_dashboard_holds_together() -> None:
    """Each panel has its own id, a title, and a place that no other has."""
    panels = json.loads((ROOT / "deploy" / "grafana.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["title"] for panel in panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert not taken & cells, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
