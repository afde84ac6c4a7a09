"""The dashboard and the report in a real browser: what people see, reach with the keyboard, and cannot be
tricked by."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest
from tests.support.runs import make_run

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None:
    pytest.skip("there is no chromium here", allow_module_level=True)
playwright_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytest.importorskip("uvicorn", reason="the dashboard needs the extra 'serve'")
pytest.importorskip("matplotlib", reason="the report needs the extra 'plot'")

SITES = [f"http://site{number}.test" for number in range(3)]
ATTACK = "<script>window.taken=1</script><img src=x onerror=window.taken=2>\"'><svg onload=window.taken=3>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Tab:
    """A page that remembers everything that went wrong in it."""

    def __init__(self, browser: Any, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(20_000)
        self.problems: list[str] = []
        self.page.on("pageerror", lambda problem: self.problems.append(f"error: {problem}"))
        self.page.on("dialog", lambda dialog: self.problems.append(f"dialog: {dialog.message}"))
        self.page.on(
            "console",
            lambda said: self.problems.append(f"console: {said.text}") if said.type == "error" else None,
        )
        self.requests: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))


@pytest.fixture
def tab(browser: Any) -> Iterator[Callable[..., Tab]]:
    tabs: list[Tab] = []

    def open_tab(address: str, **options: Any) -> Tab:
        opened = Tab(browser, **options)
        tabs.append(opened)
        opened.page.goto(address)
        return opened

    yield open_tab
    for each in tabs:
        each.context.close()


@contextmanager
def served(folder: Path, *options: str) -> Iterator[str]:
    """The address with the token, from `headway serve` in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "headway",
        "serve",
        "--port",
        "0",
        "--log-json",
        *options,
        os.fspath(folder),
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            yield json.loads(process.stderr.readline())["address"]
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(20)
            if process.poll() is None:
                process.kill()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("browser") / "harvest"
    make_run(folder, SITES, pages=30, waiting=4, deadline_s=12.0)
    return folder


@pytest.fixture(scope="module")
def address(run: Path) -> Iterator[str]:
    with served(run) as found:
        yield found


@pytest.fixture(scope="module")
def report(run: Path) -> Path:
    subprocess.run([sys.executable, "-m", "headway", "report", "-q", os.fspath(run)], check=True)
    return run / "report" / "report.html"


# -- what is seen -------------------------------------------------------------------------------------------


def test_the_dashboard_shows_the_run_without_a_single_error(tab: Callable[..., Tab], address: str) -> None:
    shown = tab(address)
    page = shown.page
    playwright_api.expect(page.locator("#run-name")).to_have_text("harvest")
    playwright_api.expect(page.locator("#tile-pages")).to_have_text("81")
    playwright_api.expect(page.locator("#sites tr:visible")).to_have_count(3)
    playwright_api.expect(page.locator("#link-chart path.measured")).to_have_count(1)
    playwright_api.expect(page.locator("#errors li").first).to_contain_text("server-error")
    assert "token" not in page.url
    assert shown.problems == []


def test_everything_comes_from_the_dashboard_itself(tab: Callable[..., Tab], address: str) -> None:
    shown = tab(address)
    playwright_api.expect(shown.page.locator("#run-name")).to_have_text("harvest")
    origin = address.partition("/#")[0]
    assert len(shown.requests) > 3, "the page, its styles, its program and what it shows"
    assert all(url.startswith(f"{origin}/") for url in shown.requests)


def test_a_site_opens_with_the_keyboard_alone_and_closes_again(tab: Callable[..., Tab], address: str) -> None:
    page = tab(address).page
    first = page.locator("#sites button").first
    first.wait_for()
    first.focus()
    page.keyboard.press("Enter")
    dialog = page.locator("#site-dialog")
    playwright_api.expect(dialog).to_be_visible()
    playwright_api.expect(page.locator("#site-chart path.measured")).to_have_count(1)
    page.keyboard.press("Escape")
    playwright_api.expect(dialog).to_be_hidden()
    assert page.evaluate("document.activeElement.closest('#sites') !== null")


def test_sorting_and_finding_work_and_say_so_to_a_screen_reader(
    tab: Callable[..., Tab], address: str
) -> None:
    page = tab(address).page
    page.locator("th button", has_text="Site").click()
    playwright_api.expect(page.locator("th[aria-sort=ascending]")).to_have_text("Site")
    page.locator("th button", has_text="Site").click()
    playwright_api.expect(page.locator("th[aria-sort=descending]")).to_have_text("Site")
    playwright_api.expect(page.locator("#sites tr:visible").first).to_contain_text("site2.test")
    page.get_by_label("Find a site").fill("site1")
    playwright_api.expect(page.locator("#sites tr:visible")).to_have_count(1)


def test_the_chart_is_read_second_by_second_with_arrow_keys(tab: Callable[..., Tab], address: str) -> None:
    page = tab(address).page
    page.locator("#link-chart path.measured").wait_for(state="attached")
    page.locator("#link-chart").focus()
    page.keyboard.press("ArrowLeft")
    playwright_api.expect(page.locator("#link-tip")).to_contain_text("measured")
    assert "bound" in page.locator("#link-chart").get_attribute("aria-label")


def test_every_control_has_a_name(tab: Callable[..., Tab], address: str) -> None:
    page = tab(address).page
    page.locator("#sites button").first.wait_for()
    nameless = page.evaluate(
        """() => [...document.querySelectorAll('button, input, select, [role=img]')].filter((element) =>
            !(element.textContent.trim() || element.getAttribute('aria-label') ||
              (element.labels && element.labels.length)) && element.id !== 'site-chart'
        ).map((element) => element.outerHTML)"""
    )
    assert nameless == []


_CONTRAST = """() => {
  const parse = (text) => {
    const canvas = document.createElement('canvas'); canvas.width = canvas.height = 1;
    const pen = canvas.getContext('2d'); pen.fillStyle = text; pen.fillRect(0, 0, 1, 1);
    return [...pen.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => [r, g, b].map((part) => part / 255).map((part) =>
    part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, place) => sum + part * [0.2126, 0.7152, 0.0722][place], 0);
  const behind = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = parse(getComputedStyle(each).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return [255, 255, 255];
  };
  const poor = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !element.checkVisibility()) continue;
    if (element.closest('.visually-hidden, script, style, option, :disabled, svg')) continue;
    const [one, two] = [light(parse(getComputedStyle(element).color)), light(behind(element))];
    const ratio = (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
    if (ratio < 4.5) poor.push(`${walker.currentNode.textContent.trim().slice(0, 30)}: ${ratio.toFixed(2)}`);
  }
  return poor;
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_of_the_dashboard_stands_out(tab: Callable[..., Tab], address: str, theme: str) -> None:
    page = tab(address, color_scheme=theme).page
    page.locator("#sites button").first.wait_for()
    page.locator("#errors li").first.wait_for()
    assert page.evaluate(_CONTRAST) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_of_the_report_stands_out(tab: Callable[..., Tab], report: Path, theme: str) -> None:
    assert tab(report.as_uri(), color_scheme=theme).page.evaluate(_CONTRAST) == []


def test_the_theme_can_be_chosen_and_is_remembered(tab: Callable[..., Tab], address: str) -> None:
    page = tab(address, color_scheme="light").page
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.locator("#theme").click()
    page.locator("#theme").click()
    playwright_api.expect(page.locator("html[data-theme=dark]")).to_have_count(1)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    page.reload()
    playwright_api.expect(page.locator("html[data-theme=dark]")).to_have_count(1)


def test_nothing_is_wider_than_a_phone(tab: Callable[..., Tab], address: str, report: Path) -> None:
    phone = {"width": 360, "height": 780}
    for place in (address, report.as_uri()):
        page = tab(place, viewport=phone).page
        if place == address:
            page.locator("#sites button").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_without_the_token_nothing_can_be_changed_and_the_page_says_how(
    tab: Callable[..., Tab], address: str
) -> None:
    page = tab(address.partition("#")[0]).page
    playwright_api.expect(page.locator("#run-name")).to_have_text("harvest")
    playwright_api.expect(page.locator("#bandwidth")).to_be_disabled()
    page.locator("#enter-token").click()
    page.get_by_label("Token").fill(address.partition("token=")[2])
    page.keyboard.press("Enter")
    playwright_api.expect(page.locator("#bandwidth")).to_be_enabled()


def test_a_wrong_token_is_reported_when_it_is_used(tab: Callable[..., Tab], address: str) -> None:
    page = tab(address.partition("#")[0] + "#token=wrong").page
    page.locator("#bandwidth:enabled").click()
    page.get_by_label("At most", exact=True).fill("1 Mbit/s")
    page.keyboard.press("Enter")
    playwright_api.expect(page.locator("#token-dialog .trouble")).to_contain_text("token is wrong")


def test_off_loopback_the_page_shows_nothing_until_it_has_the_token(
    tab: Callable[..., Tab], run: Path
) -> None:
    with served(run, "--host", "0.0.0.0") as address:
        page = tab(address.partition("#")[0]).page
        playwright_api.expect(page.locator("#token-dialog")).to_be_visible()
        assert page.locator("#run-name").inner_text() == "headway"
        page.get_by_label("Token").fill(address.partition("token=")[2])
        page.keyboard.press("Enter")
        playwright_api.expect(page.locator("#run-name")).to_have_text("harvest")
        playwright_api.expect(page.locator("#sites tr:visible")).to_have_count(3)


# -- the report ---------------------------------------------------------------------------------------------


def test_the_report_loads_nothing(tab: Callable[..., Tab], report: Path) -> None:
    opened = tab(report.as_uri())
    assert opened.requests == [report.as_uri()]
    assert opened.problems == []
    assert opened.page.locator("svg.figure").count() >= 7
    assert opened.page.locator("h2", has_text="Missed deadlines").count() == 1


# -- what the crawled web tries -----------------------------------------------------------------------------


class Attacker(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = unquote(self.path)
        if path == "/robots.txt":
            return self._answer(200, b"", "text/plain")
        if path.startswith("/broken"):
            return self._answer(500, ATTACK.encode(), f"text/html{ATTACK}")
        links = "".join(
            f'<a href="/{kind}/{quote(ATTACK, safe="")}{number}">{ATTACK}</a>'
            for kind in ("page", "broken")
            for number in range(4)
        )
        body = f"<!doctype html><title>{ATTACK}</title><h1>{ATTACK}</h1>{links}<p>{path}".encode()
        return self._answer(200, body, "text/html")

    def _answer(self, status: int, body: bytes, content_type: str) -> None:
        self.send_response(status, "<script>window.taken=4</script>")
        self.send_header("Content-Type", content_type)
        self.send_header("Server", ATTACK)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def attacker() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Attacker) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real crawl of a site that is nothing but script injections, into a folder that is named like one."""
    folder = tmp_path_factory.mktemp("attacked") / "<img src=x onerror=window.taken=5>"
    with attacker() as url:
        job = folder.parent / "job.toml"
        job.write_text(
            f'[crawl]\ninterval = "1 ms"\nallow_private = true\nmax_attempts = 2\nretry_penalty = "1 ms"\n'
            f'backoff = "1 ms"\nmax_backoff = "1 ms"\nbandwidth = "80 Mbit/s"\n[[site]]\nurl = "{url}"\n'
            f'deadline = "1 s"\n'
        )
        subprocess.run(
            [sys.executable, "-m", "headway", "crawl", "-q", os.fspath(job), "-o", os.fspath(folder)],
            check=False,
        )
    subprocess.run([sys.executable, "-m", "headway", "report", "-q", os.fspath(folder)], check=True)
    return folder


def unharmed(opened: Tab) -> None:
    assert opened.page.evaluate("window.taken") is None
    assert opened.problems == []


def test_the_attacks_were_crawled_at_all(attacked: Path) -> None:
    lines = (attacked / "crawl.log").read_text()
    assert lines.count("taken") >= 8
    assert "server-error" in lines


def test_the_dashboard_shows_attacks_as_text(tab: Callable[..., Tab], attacked: Path) -> None:
    with served(attacked) as address:
        opened = tab(address)
        page = opened.page
        playwright_api.expect(page.locator("#run-name")).to_contain_text("<img src=x")
        playwright_api.expect(page.locator("#failures li").first).to_contain_text("taken")
        page.locator("#sites button").first.click()
        playwright_api.expect(page.locator("#site-outcomes li").first).to_be_visible()
        page.keyboard.press("Escape")
        page.locator("#add").click()
        page.get_by_label("Start URL").fill(f"javascript:{ATTACK}")
        page.keyboard.press("Enter")
        playwright_api.expect(page.locator("#add-dialog .trouble")).to_contain_text("is not an http")
        assert opened.page.evaluate("window.taken") is None
        # The refusal of the last order is the one error that belongs here.
        assert [each for each in opened.problems if "422" not in each] == []


def test_the_report_and_each_of_its_figures_show_attacks_as_text(
    tab: Callable[..., Tab], attacked: Path
) -> None:
    opened = tab((attacked / "report" / "report.html").as_uri())
    assert "taken" in opened.page.locator("body").inner_text()
    unharmed(opened)
    figures = sorted((attacked / "report").glob("*.svg"))
    assert len(figures) >= 5
    for figure in figures:
        unharmed(tab(figure.as_uri()))


# -- steering a crawl that runs -----------------------------------------------------------------------------


class Endless(Attacker):
    """Every page leads to three more, and is some kilobytes long."""

    def do_GET(self) -> None:
        if self.path == "/robots.txt":
            return self._answer(404, b"", "text/plain")
        links = "".join(f'<a href="{self.path.rstrip("/")}/{number}">x</a>' for number in range(3))
        return self._answer(200, (links + self.path + " word" * 800).encode(), "text/html")


@contextmanager
def endless(count: int) -> Iterator[list[str]]:
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), Endless) for _ in range(count)]
    threads = [threading.Thread(target=server.serve_forever) for server in servers]
    for thread in threads:
        thread.start()
    try:
        yield [f"http://127.0.0.1:{server.server_port}/" for server in servers]
    finally:
        for server, thread in zip(servers, threads, strict=True):
            server.shutdown()
            thread.join()
            server.server_close()


def decisions(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "decisions.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines if line.endswith("}")]


def until(true: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.05)


@pytest.mark.timeout(180)
def test_a_person_steers_a_running_crawl_from_the_page(tab: Callable[..., Tab], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with endless(3) as (first, second, third):
        command = [sys.executable, "-m", "headway", "crawl", first, second, "-o", os.fspath(folder)]
        command += ["--serve", "--serve-port", "0", "--log-json", "--allow-private", "--interval", "20 ms"]
        command += ["--bandwidth", "40 KB/s", "--deadline", "10 min", "--max-depth", "200"]
        with subprocess.Popen(
            command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        ) as process:
            try:
                assert process.stderr is not None
                address = next(
                    facts["address"]
                    for line in process.stderr
                    if (facts := json.loads(line))["event"] == "serving"
                )
                threading.Thread(target=process.stderr.read, daemon=True).start()
                _steer(tab(address), folder, second.rstrip("/"), third)
            finally:
                process.send_signal(signal.SIGINT)
                process.wait(30)
        assert process.returncode == 11
    noted = [line["decision"] for line in decisions(folder) if line["decision"].startswith("order-")]
    assert noted == ["order-pause", "order-resume", "order-deadline", "order-add", "order-stop"]


def _steer(opened: Tab, folder: Path, second: str, third: str) -> None:
    page, expect = opened.page, playwright_api.expect
    expect(page.locator("#run-state")).to_have_text("running")
    page.locator("#pause:enabled").click()
    expect(page.locator("#run-state")).to_have_text("paused")
    until(lambda: "order-pause" in [line["decision"] for line in decisions(folder)], "the pause is not noted")
    before = [line for line in decisions(folder) if line["decision"] == "fetch"]
    paused_at = next(line["at"] for line in decisions(folder) if line["decision"] == "order-pause")
    assert all(line["at"] <= paused_at for line in before)
    expect(page.locator("#pause")).to_have_text("Resume")
    page.locator("#pause").click()
    expect(page.locator("#run-state")).to_have_text("running")
    until(
        lambda: len([x for x in decisions(folder) if x["decision"] == "fetch"]) > len(before),
        "it stands still",
    )

    page.locator("#bandwidth").click()
    page.get_by_label("At most", exact=True).fill("quick")
    page.keyboard.press("Enter")
    expect(page.locator("#bandwidth-dialog .trouble")).to_contain_text("is not a rate")
    page.get_by_label("At most", exact=True).fill("300 KB/s")
    page.keyboard.press("Enter")
    expect(page.locator("#legend-bound")).to_have_text("300 KB/s")
    until(
        lambda: any(line.get("capacity_bytes_per_s") == 300_000 for line in decisions(folder)),
        "no other bound",
    )

    page.get_by_role("button", name=second.partition("//")[2]).click()
    page.get_by_label("Deadline", exact=True).locator("visible=true").fill("2 h")
    page.get_by_role("button", name="Set the deadline").click()
    expect(page.locator("#sites")).to_contain_text(re.compile(r"due in (2 h|1 h 59 min)"))

    page.locator("#add").click()
    page.get_by_label("Start URL").fill(third)
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_role("button", name=third.partition("//")[2].rstrip("/"))).to_be_visible()
    until(lambda: any(third.rstrip("/") == line.get("site") for line in decisions(folder)
                      if line["decision"] == "fetch"), "the new site is not asked")  # fmt: skip

    page.get_by_role("button", name=second.partition("//")[2]).click()
    page.locator("#site-stop:enabled").click()
    page.get_by_role("button", name="Stop it permanently?").click()
    expect(page.locator("#sites .pill.stopped")).to_have_count(1)
    expect(page.locator("#log")).to_contain_text("stop this site")
    assert opened.page.evaluate("window.taken") is None
