"""`headway listen-squid`: fresh copies of what the users of a Squid proxy ask for."""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click
import msgspec

from headway.app.again import job_tables
from headway.app.listening import Listening
from headway.cli.frame import read_option, results, stdout
from headway.cli.log import Log, log_options
from headway.config import checks
from headway.config.job import Job, build_job
from headway.config.reading import Source, convert
from headway.squid.address import HelperSocket, Place, parse_place
from headway.squid.configuration import configuration
from headway.squid.privacy import PRIVATE_PARAMETERS, PrivacyRules
from headway.squid.settings import ProxySettings
from headway.squid.spool import FOLDER
from headway.squid.table import table_lines
from headway.store.reader import DATABASE

_SAY_EVERY_S = 10


@click.command("listen-squid")
@click.argument("run", type=click.Path(path_type=Path, file_okay=False))
@click.option("--proxy", metavar="URL", help="The proxy that pages are fetched through.")
@click.option(
    "--listen",
    multiple=True,
    metavar="PLACE",
    help="unix:PATH for the helper, udp:HOST:PORT for helper or log, tcp:HOST:PORT for the log, tail:PATH "
    "for the log's file; repeatable.  [default: unix:RUN/announced/helper.sock]",
)
@click.option("--refresh-after", default="24 h", show_default=True, help="A younger copy is left alone.")
@click.option("--delay", default="10 s", show_default=True, help="After an announcement, before we ask.")
@click.option("--interval", default="1 s", show_default=True, help="Between two requests for a site.")
@click.option("--max-connections", type=int, default=8, show_default=True, help="To the proxy.")
@click.option("--bandwidth", metavar="RATE", help="The most to take from the proxy, such as 2Mbit/s.")
@click.option("--queries", is_flag=True, help="URLs with a query, too, unless a parameter looks private.")
@click.option("--private-parameter", multiple=True, metavar="NAME", help="One more that does; repeatable.")
@click.option("--print-config", is_flag=True, help="Print what belongs into squid.conf, and end.")
@click.option("--json", "as_json", is_flag=True, help="The counts as JSON.")
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
    """Keep the copies in a run folder fresh with what the users of a Squid proxy ask for.

    Each page that they ask for, and that is in the crawl's scope, is fetched through the proxy when it is new
    or its copy is old. Works beside a crawl that is running, and goes on when that ends.
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
        raise click.UsageError("say with --proxy which proxy the pages are fetched through")
    read_option("--proxy", checks.proxy, proxy)
    job = _job_of(run)
    settings = ProxySettings(
        proxy,
        read_option("--delay", checks.pause, delay),
        read_option("--refresh-after", checks.pause, refresh_after),
        read_option("--interval", checks.pause, interval),
        read_option("--max-connections", checks.count, max_connections),
        None if bandwidth is None else read_option("--bandwidth", checks.rate, bandwidth),
    )
    private = [read_option("--private-parameter", checks.regex, text) for text in private_parameter]
    patterns = "|".join([PRIVATE_PARAMETERS, *private])
    privacy = PrivacyRules(queries, patterns, job.scope.max_url_length)
    make = partial(Listening, job, run, places, settings=settings, privacy=privacy)
    listening = asyncio.run(_listen(make, proxy, log))
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


async def _listen(make: Callable[..., Listening], proxy: str, log: Log) -> Listening:
    news = _News(log)
    listening = news.listening = make(on_second=news.on_second)
    loop = asyncio.get_running_loop()

    def interrupt() -> None:
        if listening.interrupted:
            listening.stop()
        else:
            log.say("draining", "finishing what is under way; interrupt again to stop at once")
            listening.drain()

    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, interrupt)
    log.say("listening", f"listening, and fetching through {checks.without_login(proxy)}; interrupt to end")
    await listening.listen()
    return listening


class _News:
    """A line now and then, when there is something new."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.listening: Listening | None = None
        self._seconds = 0
        self._last = ""

    def on_second(self) -> None:
        self._seconds += 1
        if self.listening is None or self._seconds % _SAY_EVERY_S:
            return
        result = self.listening.result()
        line = (
            f"{result.announced} announced, {result.updates} updated, {result.new} new, "
            f"{result.fresh} fresh, {sum(result.errors.values())} errors, {sum(result.lost.values())} lost"
        )
        if line != self._last:
            self._last = line
            self._log.say("heard", line, msgspec.to_builtins(result))
