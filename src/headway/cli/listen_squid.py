"""`headway listen-squid`: fetches fresh copies of the pages that the users of a Squid proxy request."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import click
import msgspec

from headway.cli.frame import Log, log_options, read_option, results, stdout
from headway.cli.running import drain_on_signals
from headway.cluster.collecting import job_tables
from headway.config import values
from headway.config.job import Job, build_job
from headway.config.reading import Source, convert
from headway.runtime.crawling import CrawlRun
from headway.runtime.driver import WallClock
from headway.runtime.proxy_refresher import COUNTERS as COLLECTOR_COUNTERS
from headway.squid.listener import COUNTERS as LISTENER_COUNTERS
from headway.squid.listener import HelperSocket, Listener, Place, configuration, parse_place
from headway.squid.spool import (
    FOLDER,
    PRIVATE_PARAMETERS,
    Intake,
    Listened,
    PrivacyRules,
    ProxySettings,
    listened,
    load_counters,
    save_settings,
    table_lines,
)
from headway.store.reader import DATABASE
from headway.units import Seconds

_POLL_EVERY_S = 1.0
_OWN_ECHO_S = 60.0
_SHOW_EVERY_S = 10


class Listening:
    """Receives announcements for a run folder. While another process crawls into it, that process fetches the
    announced pages; otherwise this one does.
    """

    def __init__(
        self,
        job: Job,
        folder: Path,
        places: Sequence[Place],
        *,
        settings: ProxySettings,
        privacy: PrivacyRules,
    ) -> None:
        self._job = job
        self._folder = folder
        self._places = places
        self._settings = settings
        self._privacy = privacy
        self._stopping = asyncio.Event()
        self._run: CrawlRun | None = None
        self.interrupted = False

    async def listen(self, *, on_second: Callable[[], None]) -> None:
        """Receive announcements until `drain` or `stop` is called."""
        save_settings(self._folder, self._settings)
        counters = load_counters(self._folder / FOLDER / LISTENER_COUNTERS)
        # A page need not be checked again while its copy is fresh. Also, our own requests to the proxy are
        # announced to us, and must not lead to further requests.
        settings = self._settings
        repeat_after_s = Seconds(max(min(3600.0, settings.refresh_after_s), settings.delay_s + _OWN_ECHO_S))
        intake = Intake(self._job.scope, self._privacy, counters, repeat_after_s=repeat_after_s)
        async with Listener(self._folder, self._places, intake, WallClock()):
            while not self._stopping.is_set():
                if self._is_crawled_by_another():
                    on_second()
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._stopping.wait(), _POLL_EVERY_S)
                    continue
                self._run = CrawlRun(self._job, self._folder, stays=True)
                try:
                    await self._run.run(on_second=on_second)
                finally:
                    self._run = None

    def drain(self) -> None:
        """Finish the requests that are in flight, then end."""
        self.interrupted = True
        self._stopping.set()
        if self._run is not None:
            self._run.drain()

    def stop(self) -> None:
        """End at once; requests that are in flight are abandoned."""
        self._stopping.set()
        if self._run is not None:
            self._run.stop()

    def result(self) -> Listened:
        folder = self._folder / FOLDER
        return listened(load_counters(folder / LISTENER_COUNTERS), load_counters(folder / COLLECTOR_COUNTERS))

    def _is_crawled_by_another(self) -> bool:
        try:
            descriptor = os.open(self._folder / f"{DATABASE}-lock", os.O_RDWR)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False


@click.command("listen-squid")
@click.argument("run", type=click.Path(path_type=Path, file_okay=False))
@click.option("--proxy", metavar="URL", help="URL of the proxy to fetch pages through.")
@click.option(
    "--listen",
    multiple=True,
    metavar="PLACE",
    help="Address to listen on: unix:PATH for the helper, udp:HOST:PORT for the helper or the access log, "
    "tcp:HOST:PORT for the access log, tail:PATH for the file of the access log. Repeatable.  "
    "[default: unix:RUN/announced/helper.sock]",
)
@click.option(
    "--refresh-after", default="24 h", show_default=True, help="Fetch a page again if its copy is older."
)
@click.option(
    "--delay", default="10 s", show_default=True, help="Pause between an announcement and the request."
)
@click.option("--interval", default="1 s", show_default=True, help="Pause between two requests to a site.")
@click.option(
    "--max-connections", type=int, default=8, show_default=True, help="Maximum of connections to the proxy."
)
@click.option(
    "--bandwidth", metavar="RATE", help="Bandwidth limit of the requests to the proxy, such as 2Mbit/s."
)
@click.option("--queries", is_flag=True, help="Accept URLs with a query unless a parameter looks private.")
@click.option(
    "--private-parameter",
    multiple=True,
    metavar="NAME",
    help="Another query parameter to treat as private, as a regular expression. Repeatable.",
)
@click.option("--print-config", is_flag=True, help="Print the lines for squid.conf and exit.")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
@log_options
def listen_squid_command(
    run: Path,
    *,
    proxy: str | None,
    listen: tuple[str, ...],
    refresh_after: str,
    delay: str,
    interval: str,
    max_connections: int,
    bandwidth: str | None,
    queries: bool,
    private_parameter: tuple[str, ...],
    print_config: bool,
    as_json: bool,
    log: Log,
) -> int:
    """Keep a run folder fresh with the pages that the users of a Squid proxy request.

    Each requested page in the crawl's scope is fetched through the proxy if it is new or its copy is old.
    A crawl may run into the same folder at the same time; the command continues when the crawl ends.
    """
    default = HelperSocket(run.absolute() / FOLDER / "helper.sock")
    places: list[Place] = [read_option("--listen", parse_place, text) for text in listen] or [default]
    if print_config:
        socket = next((each for each in places if isinstance(each, HelperSocket)), default)
        program = shutil.which("headway-squid-helper") or "/usr/local/bin/headway-squid-helper"
        scope = _job_of(run).scope if (run / DATABASE).exists() else None
        click.echo(configuration(program, socket.path, scope))
        return 0
    if proxy is None:
        raise click.UsageError("--proxy is missing; give the URL of the proxy to fetch pages through")
    read_option("--proxy", values.proxy, proxy)
    job = _job_of(run)
    settings = ProxySettings(
        proxy,
        read_option("--delay", values.pause, delay),
        read_option("--refresh-after", values.pause, refresh_after),
        read_option("--interval", values.pause, interval),
        read_option("--max-connections", values.count, max_connections),
        None if bandwidth is None else read_option("--bandwidth", values.rate, bandwidth),
    )
    private = [read_option("--private-parameter", values.regex, text) for text in private_parameter]
    patterns = "|".join([PRIVATE_PARAMETERS, *private])
    privacy = PrivacyRules(queries, patterns, job.scope.max_url_length)
    listening = Listening(job, run, places, settings=settings, privacy=privacy)
    asyncio.run(_listen(listening, proxy, log))
    with results():
        result = listening.result()
        if as_json:
            click.echo(msgspec.json.encode(result))
        elif not log.is_quiet:
            console = stdout(is_literal=True)
            for line in table_lines(result):
                console.print(line)
    return 0


def _job_of(run: Path) -> Job:
    source = Source(f"the job in {run}")
    return build_job(convert(job_tables(run), source), source)


async def _listen(listening: Listening, proxy: str, log: Log) -> None:
    drain_on_signals(listening, log)
    log.say("listening", f"listening, and fetching through {values.without_login(proxy)}; interrupt to end")
    await listening.listen(on_second=_CountsDisplay(listening, log).on_second)


class _CountsDisplay:
    """Shows the counts every ten seconds if they have changed."""

    def __init__(self, listening: Listening, log: Log) -> None:
        self._listening = listening
        self._log = log
        self._seconds = 0
        self._last = ""

    def on_second(self) -> None:
        self._seconds += 1
        if self._seconds % _SHOW_EVERY_S:
            return
        result = self._listening.result()
        line = (
            f"{result.announced} announced, {result.updates} updated, {result.new} new, "
            f"{result.fresh} fresh, {sum(result.errors.values())} errors, {sum(result.lost.values())} lost"
        )
        if line != self._last:
            self._last = line
            self._log.say("heard", line, msgspec.to_builtins(result))
