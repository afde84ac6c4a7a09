"""`python scripts/make_demo_picture.py`: docs/images/demo.png, what `headway demo` does, in one picture.

The sites have their names in it: their ports are others each time.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from headway.cli.crawl import run_job
from headway.cli.demo import demo_job
from headway.cli.frame import Log
from headway.demoweb import ServedProcess, design_web
from headway.report.plots import draw_picture

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "demo.png"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, ServedProcess(design_web(7, 1.0)) as served:
        run = Path(folder) / "run"
        run_job(demo_job(served, "4 Mbit/s"), run, Log(is_quiet=True), as_json=True, serve_at=None)
        draw_picture(run, PICTURE, {origin: name for name, origin in served.sites.items()})


if __name__ == "__main__":
    main()
