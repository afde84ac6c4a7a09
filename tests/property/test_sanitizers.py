"""The C modules read hostile input without a bad access or undefined behaviour that gcc's sanitizers see."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import hatch_build  # noqa: E402

FLAGS = [
    "-O1",
    "-g",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=undefined",
    "-fno-omit-frame-pointer",
]

READ_CORPUS = """
import random
import numpy as np
import headway.pages
from benchmarks.cost.recipes import read_corpus
from benchmarks.cost.targets import HOME, URL, response_of
from headway.archive.records import load_sealer
from headway.engine.discovery import seen_set
from headway.pages.document import parse
from headway.pages.fingerprint import content_digests
from headway.pages.parsed import ParseOptions
from headway.pages.url import key_of
from headway.policy.traps import near
from headway.policy.traps import near
assert headway.pages.fast is not None and headway.pages.sha1 is not None, "the C modules were not loaded"
options, numbers, sealer, read = ParseOptions(takes_fingerprints=True), random.Random(1), load_sealer(2), 0
for recipes in read_corpus().values():
    for recipe in recipes:
        for length in (0, 1, 63, 64, 65, 3000):
            # A buffer of its own, of exactly this length, so that a read beyond it is seen.
            octets = bytes(bytearray(recipe.make(length)[:length]))
            parse(response_of(octets), HOME, options)
            content_digests([octets, octets[:1], b"", octets[: length // 2], octets])
            if sealer is not None:
                sealer.submit("response", "2026-01-01T00:00:00Z", URL, "application/http", "sha1:A", "",
                              octets, octets, b"GET / HTTP/1.1\\r\\n\\r\\n")
            key_of(octets.decode("latin-1"), octets[:64])
            read += 1
    if sealer is not None:
        assert all(made is not None for made in sealer.collect())
seen, keys = seen_set(), [numbers.getrandbits(64) - 2**63 for _ in range(3000)]
assert len(seen.add_all(keys)) == len(set(keys)) and not seen.add_all(keys)
for limit in (0, 5, 1000):
    seen = seen_set(keys[:100], [1] * 100, recent_limit=limit)
    for begin in range(0, 3000, 300):
        part = keys[begin : begin + 300]
        seen.add_all(part, [2] * len(part))
        seen.add_many(np.array(part, dtype=np.int64), np.array([3] * len(part), dtype=np.uint16))
    assert len(seen) == len(set(keys))
assert near(5, [1, 2**63 + 5, 4], 1) is not None
print(read, "read")
"""


def library(name: str) -> str | None:
    if shutil.which("gcc") is None:
        return None
    asked = subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    path = asked.stdout.strip()
    return path if Path(path).is_absolute() else None


@pytest.mark.timeout(500)  # six modules are compiled, and all runs several times slower
@pytest.mark.skipif(library("libasan.so") is None, reason="the sanitizers of gcc are not installed")
def test_the_c_modules_read_the_corpus_of_hostile_inputs(tmp_path: Path) -> None:
    src = tmp_path / "src"
    shutil.copytree(
        ROOT / "src" / "headway", src / "headway", ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    toolchain = hatch_build.Toolchain(tmp_path / "built", FLAGS)
    sources = sorted(src.rglob("_*.c"))
    for source, compiled in zip(sources, toolchain.compile(sources), strict=True):
        place = source.with_suffix(hatch_build.SUFFIX)
        shutil.copyfile(toolchain.link([compiled], source.stem), place)
    environment = {
        **os.environ,
        "PYTHONPATH": f"{src}:{ROOT}",
        "LD_PRELOAD": " ".join(filter(None, map(library, ("libasan.so", "libubsan.so", "libstdc++.so")))),
        # Python frees little at its end; what it frees then is not what is looked for.
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        "PYTHONMALLOC": "malloc",
    }
    done = subprocess.run(
        [sys.executable, "-c", READ_CORPUS],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "runtime error" not in done.stderr, done.stderr[-4000:]
    assert done.stdout.endswith("read\n"), done.stdout
