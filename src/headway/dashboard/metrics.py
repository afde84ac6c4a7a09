"""The run for Prometheus, with conventional names: base units, `_total` where a number only grows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from headway.dashboard.watching import Picture
from headway.version import __version__


class RunCollector(Collector):
    """Sums over sites, never a series for each: ten thousand sites would be ten thousand series."""

    def __init__(self, picture: Callable[[], Picture]) -> None:
        self._picture = picture

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        picture = self._picture()
        run = picture.run
        yield CounterMetricFamily("headway_bytes_downloaded", "Bytes that came over the link", run.wire_bytes)
        yield CounterMetricFamily("headway_pages_fetched", "Pages fetched", run.done)
        yield CounterMetricFamily("headway_pages_failed", "Pages given up", run.failed)
        errors = CounterMetricFamily("headway_errors", "Failed attempts, by kind", labels=["kind", "state"])
        for error in run.errors:
            errors.add_metric([error.kind, error.state], error.count)
        yield errors
        yield GaugeMetricFamily("headway_pages_waiting", "Pages in the queue", run.waiting)
        yield GaugeMetricFamily("headway_requests_in_flight", "Requests under way", run.in_flight)
        yield GaugeMetricFamily("headway_collectors", "Processes that crawl", len(run.collectors))
        yield GaugeMetricFamily(
            "headway_link_rate_bytes_per_second", "Measured over the last second", run.rate_bytes_per_s
        )
        if run.bound_bytes_per_s is not None:
            yield GaugeMetricFamily(
                "headway_link_bound_bytes_per_second", "The bound on the link", run.bound_bytes_per_s
            )
        if run.predicted_bytes_per_s is not None:
            yield GaugeMetricFamily(
                "headway_link_predicted_bytes_per_second",
                "What the servers under way should give together",
                run.predicted_bytes_per_s,
            )
        if run.forecast_at is not None:
            yield GaugeMetricFamily(
                "headway_forecast_end_timestamp_seconds", "When the last site will end", run.forecast_at
            )
        yield GaugeMetricFamily(
            "headway_start_timestamp_seconds", "When the crawl was first begun", run.started_at
        )
        yield from _by_label(picture)
        up = GaugeMetricFamily("headway_running", "1 while a crawl runs", labels=["state"])
        up.add_metric([run.state], 1.0 if run.state in {"running", "paused"} else 0.0)
        yield up
        build = GaugeMetricFamily("headway_build_info", "The version that serves this", labels=["version"])
        build.add_metric([__version__], 1)
        yield build


def _by_label(picture: Picture) -> Iterator[Metric]:
    sites = GaugeMetricFamily("headway_sites", "Sites, by state", labels=["state"])
    for state, count in sorted(Counter(line.state for line in picture.sites).items()):
        sites.add_metric([state], count)
    yield sites
    deadlines = GaugeMetricFamily("headway_deadlines", "Deadlines, by how they stand", labels=["outlook"])
    for outlook, count in sorted(Counter(line.outlook for line in picture.sites).items()):
        if outlook != "none":
            deadlines.add_metric([outlook], count)
    yield deadlines


def render(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    encoder, content_type = choose_encoder(accept)
    return encoder(registry), content_type
