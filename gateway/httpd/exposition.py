"""/metrics: what `gateway.metrics` counted and what the gauges show, in Prometheus' text formats by its own library.

Imported with the HTTP server and not without it; no registry of the process, no state. Called by `gateway.httpd.server`, once a scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from gateway.metrics import GAUGES, Histogram, Metrics, Reading


class Exposition(Collector):
    """What a scrape gets. `readings` is asked anew for each one."""

    def __init__(self, metrics: Metrics, readings: Callable[[], Iterable[Reading]]) -> None:
        self._metrics, self._readings = metrics, readings
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def render(self, accept: str) -> tuple[bytes, str]:
        """The body and its content type, in the format that `accept` (the header) prefers."""
        encode, kind = choose_encoder(accept)
        return encode(self._registry), kind

    def describe(self) -> list[Metric]:
        """Nothing: so that the registry does not collect to find out the names."""
        return []

    def collect(self) -> Iterator[Metric]:
        for counter in self._metrics.counters():
            family = CounterMetricFamily(counter.name, counter.text, labels=counter.labels)
            for labels, value in counter.values.items():
                family.add_metric(labels, value)
            yield family
        for histogram in self._metrics.histograms():
            yield _histogram(histogram)
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {
            gauge.name: (CounterMetricFamily if gauge.kind == "counter" else GaugeMetricFamily)(gauge.name, gauge.text, labels=gauge.labels)
            for gauge in GAUGES
        }
        for gauge, value, labels in self._readings():
            families[gauge.name].add_metric(labels, value)
        yield from families.values()


def _histogram(histogram: Histogram) -> HistogramMetricFamily:
    totals = [float(total) for total in accumulate(histogram.counts)]
    bounds = [*map(floatToGoString, histogram.bounds), "+Inf"]
    return HistogramMetricFamily(histogram.name, histogram.text, buckets=list(zip(bounds, totals, strict=True)), sum_value=histogram.sum)
