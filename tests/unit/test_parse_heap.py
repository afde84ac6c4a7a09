from __future__ import annotations

import platform
import subprocess
import sys

import pytest

MEASURE = """
import resource
from headway.runtime.process import keep_freed_memory
from headway.pages.headers import decode
{call}
content = b"<p class=x>text <a href=y>z</a>" * 7000
for _ in range(20):
    decode(content)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(200):
    decode(content)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(call: str) -> int:
    done = subprocess.run([sys.executable, "-c", MEASURE.format(call=call)], check=True, capture_output=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
def test_kept_memory_spares_the_page_faults_of_every_page() -> None:
    assert faults("assert keep_freed_memory()") < 0.2 * faults("") + 100
