"""`python -m benchmarks.dashboard.screenshots`: the pictures of the dashboard and the report in docs/images,
from a crawl of the demo web. Needs chromium."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

IMAGES = Path(__file__).parents[2] / "docs" / "images"
WIDTH = 880


def address_of(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    for line in process.stderr:
        if '"address"' in line:
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return str(json.loads(line)["address"])
    raise SystemExit("no dashboard")


def take(browser: object, address: str, name: str, *, theme: str, height: int, width: int = 1320) -> None:
    context = browser.new_context(color_scheme=theme, viewport={"width": width, "height": height})  # type: ignore[attr-defined]
    page = context.new_page()
    page.goto(address)
    page.wait_for_timeout(2500)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "shot.png"
        page.screenshot(path=path)
        picture = Image.open(path).convert("RGB")
        if width > WIDTH:
            height = round(picture.height * WIDTH / picture.width)
            picture = picture.resize((WIDTH, height), Image.Resampling.LANCZOS)
        picture.quantize(250, dither=Image.Dither.NONE).save(IMAGES / f"{name}.png", optimize=True)
    context.close()


def main() -> None:
    chromium = shutil.which("chromium")
    headway = [sys.executable, "-m", "headway"]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        run = Path(folder) / "harvest"
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        demo = [*headway, "demo", "-o", os.fspath(run), "--bandwidth", "2400 kbit/s", "--log-json"]
        demo += ["--serve", "--serve-port", "0"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen(demo, **quiet) as crawl:  # type: ignore[call-overload]
            address = address_of(crawl)
            threading.Event().wait(8)
            take(browser, address, "dashboard-running-light", theme="light", height=1000)
            take(browser, address, "dashboard-running-dark", theme="dark", height=1000)
            take(browser, address, "dashboard-phone", theme="light", height=844, width=390)
            crawl.wait(120)
        command = [*headway, "serve", "--port", "0", "--log-json", os.fspath(run)]
        with subprocess.Popen(command, **quiet) as serve:  # type: ignore[call-overload]
            address = address_of(serve)
            take(browser, address, "dashboard-finished-light", theme="light", height=760)
            take(browser, address, "dashboard-finished-dark", theme="dark", height=760)
            serve.send_signal(signal.SIGINT)
        subprocess.run([*headway, "report", "-q", os.fspath(run)], check=True)
        report = (run / "report" / "report.html").as_uri()
        for theme in ("light", "dark"):
            take(browser, report, f"report-{theme}", theme=theme, height=1120, width=1080)
        browser.close()


if __name__ == "__main__":
    main()
