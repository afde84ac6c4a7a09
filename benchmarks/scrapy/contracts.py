"""Scrapy's own tests of HTTP download handlers, run on the add-on's.

They are in Scrapy's source archive (`pip download --no-binary :all: --no-deps scrapy==VERSION`), unpacked
somewhere. They run in an environment of their own, since they bring plugins that our own tests do not want.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_PLACE = _ROOT / "build" / "peers" / "contracts"
_NAME = "test_headway_handler.py"
_BASES = (
    *("Http", "Https", "SimpleHttps", "HttpsWrongHostname", "HttpsInvalidDNSId", "HttpsInvalidDNSPattern"),
    *("HttpsCustomCiphers", "HttpsDefaultCiphers", "HttpsTLSVersion", "HttpWithCrawler", "HttpProxy"),
)
_HEAD = """
import pytest
from headway.scrapy.handler import HeadwayDownloadHandler
from tests.utils.bases import download_handlers_http as bases

pytestmark = pytest.mark.only_asyncio
PATH = "headway.scrapy.handler.HeadwayDownloadHandler"


class Ours:
    download_handler_cls = HeadwayDownloadHandler
    settings_dict = {"DOWNLOAD_HANDLERS": {"http": PATH, "https": PATH}}
    tls_log_message = "SSL connection to 127.0.0.1 using protocol TLSv1.3, cipher"
    expected_http_proxy_request_body = b"http://example.com/"
"""


def report(folder: Path, say: Callable[[str], None]) -> bool:
    if not (folder / "tests" / "utils" / "bases" / "download_handlers_http.py").exists():
        say(f"{folder} is not the source of Scrapy {version('scrapy')}, with its tests")
        return False
    classes = [f"class Test{base}(Ours, bases.Test{base}Base): pass" for base in _BASES]
    classes.append("class TestHttpsWithCrawler(TestHttpWithCrawler): is_secure = True")
    (folder / "tests" / _NAME).write_text(_HEAD + "\n".join(classes) + "\n")
    command = [
        str(_environment()),
        "-m",
        "pytest",
        f"tests/{_NAME}",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:asyncio",
    ]
    # Twisted's own way to check certificates is not ours; Scrapy leaves the test out for its other handlers.
    command += ["--deselect", f"tests/{_NAME}::TestHttps::test_verify_certs_deprecated"]
    command += ["-W", "ignore::pytest.PytestRemovedIn10Warning"]
    done = subprocess.run(command, cwd=folder, check=False, stdout=subprocess.PIPE, text=True)
    print(done.stdout)
    say(f"Scrapy {version('scrapy')}: {done.stdout.strip().splitlines()[-1].strip('= ')}")
    return done.returncode == 0


def _environment() -> Path:
    python = _PLACE / "bin" / "python"
    if not (_PLACE / "complete").exists():
        shutil.rmtree(_PLACE, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(_PLACE)], check=True)
        wanted = ["pytest", "pytest-twisted", "testfixtures", f"scrapy=={version('scrapy')}"]
        command = [str(python), "-m", "pip", "install", "--quiet", *wanted, "--editable", f"{_ROOT}[scrapy]"]
        subprocess.run(command, check=True)
        (_PLACE / "complete").touch()
    return python
