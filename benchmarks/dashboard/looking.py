"""How long a look takes: the API, and the page until it is painted in a browser, where there is one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def served(folder: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "headway", "serve", "--port", "0", "--log-json", os.fspath(folder)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        yield json.loads(process.stderr.readline())["address"]
        process.send_signal(signal.SIGINT)
        process.wait(20)


def measure_looking(folder: Path) -> dict[str, str]:
    figures = {}
    with served(folder) as address:
        origin = address.partition("/#")[0]
        times, size = [], 0
        for _ in range(8):
            begun = time.perf_counter()
            with urllib.request.urlopen(f"{origin}/api/v1/now?limit=25") as answer:
                size = len(answer.read())
            times.append(time.perf_counter() - begun)
            time.sleep(0.9)  # so that each look reads the run again
        figures["one refresh, server side"] = (
            f"{1000 * statistics.median(times):.0f} ms, {size / 1000:.0f} KB"
        )
        chromium = shutil.which("chromium")
        if chromium is not None:
            figures |= _in_browser(chromium, address)
    return figures


def _in_browser(chromium: str, address: str) -> dict[str, str]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        begun = time.perf_counter()
        page.goto(address)
        page.locator("#sites button").first.wait_for()
        filled_s = time.perf_counter() - begun
        paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        longest = page.evaluate(
            """() => new Promise((done) => {
                let last = performance.now(), longest = 0, frames = 0;
                const step = (now) => {
                    longest = Math.max(longest, now - last); last = now; frames += 1;
                    if (frames < 300) requestAnimationFrame(step); else done(longest);
                };
                requestAnimationFrame(step);
            })"""
        )
        browser.close()
    return {
        "first paint in Chromium": f"{paint:.0f} ms",
        "all figures in Chromium": f"{1000 * filled_s:.0f} ms",
        "longest frame while refreshing": f"{longest:.0f} ms",
    }
