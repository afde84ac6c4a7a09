"""Who we are: keys, what is published of them, and signatures that others can verify."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.support.rawserver import RawServer, page

from headway.cli.frame import headway
from headway.config.job import build_job
from headway.config.reading import Source, convert
from headway.errors import JobError
from headway.http.client import HttpFetcher
from headway.http.identity import KEY_FILE, Signer, load_signer
from headway.http.models import ClientOptions
from headway.ports import Request, Response
from headway.runtime.driver import WallClock
from headway.units import Instant

NOW = Instant(1_700_000_000.0)
AGENT = "https://bot.example.org"


def init(folder: Path, *more: str) -> str:
    result = CliRunner().invoke(
        headway, ["identity", "init", str(folder), "--agent", AGENT, "--contact", "crawl@example.org", *more]
    )
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.output


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    init(tmp_path / "id", "--name", "mybot/1.0", "--range", "192.0.2.0/28", "--range", "2001:db8::/48")
    return tmp_path / "id"


@pytest.fixture
def signer(folder: Path) -> Signer:
    return load_signer(folder, WallClock().now())


def published(folder: Path) -> list[dict[str, object]]:
    text = (folder / "publish/.well-known/http-message-signatures-directory").read_text()
    keys: list[dict[str, object]] = json.loads(text)["keys"]
    return keys


def test_what_is_published_names_the_key_and_not_its_secret(folder: Path) -> None:
    (key,) = published(folder)
    assert {name: key[name] for name in ("kty", "crv", "use")} == {
        "kty": "OKP",
        "crv": "Ed25519",
        "use": "sig",
    }
    canonical = json.dumps(
        {name: key[name] for name in ("crv", "kty", "x")}, separators=(",", ":"), sort_keys=True
    )
    thumbprint = base64.urlsafe_b64encode(hashlib.sha256(canonical.encode()).digest()).decode().rstrip("=")
    assert key["kid"] == thumbprint
    ranges = json.loads((folder / "publish/ip-ranges.json").read_text())
    assert ranges["prefixes"] == [{"ipv4Prefix": "192.0.2.0/28"}, {"ipv6Prefix": "2001:db8::/48"}]
    bot = (folder / "publish/bot.html").read_text()
    assert 'rel="client-ranges"' in bot
    assert "mailto:crawl@example.org" in bot
    secret = "".join((folder / KEY_FILE).read_text().splitlines()[1:-1])
    assert not any(secret in path.read_text() for path in (folder / "publish").rglob("*") if path.is_file())
    assert (folder / KEY_FILE).stat().st_mode & 0o777 == 0o600


def signature_base(headers: dict[str, str], authority: str) -> tuple[bytes, bytes]:
    """By RFC 9421 2.5, from the headers alone: the base and the signature."""
    label, _, parameters = headers["signature-input"].partition("=")
    lines = []
    for name in re.findall(r'"([^"]+)"', parameters[1 : parameters.index(")")]):
        value = authority if name == "@authority" else headers[name]
        lines.append(f'"{name}": {value}')
    lines.append(f'"@signature-params": {parameters}')
    signature = re.fullmatch(rf"{label}=:([A-Za-z0-9+/=]+):", headers["signature"])
    assert signature is not None
    return "\n".join(lines).encode(), base64.b64decode(signature[1])


def test_openssl_verifies_a_signature_with_the_published_key(
    folder: Path, signer: Signer, tmp_path: Path
) -> None:
    headers = {name.lower(): value for name, value in signer.headers(NOW, "WWW.example.com:8080")}
    base, signature = signature_base(headers, "www.example.com:8080")
    x = base64.urlsafe_b64decode(str(published(folder)[0]["x"]) + "=")
    (tmp_path / "key.der").write_bytes(bytes.fromhex("302a300506032b6570032100") + x)
    (tmp_path / "base").write_bytes(base)
    (tmp_path / "signature").write_bytes(signature)
    command = "openssl pkeyutl -verify -pubin -keyform DER -rawin -inkey key.der -in base -sigfile signature"
    verified = subprocess.run(command.split(), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "Signature Verified Successfully" in verified.stdout, verified.stderr
    (tmp_path / "base").write_bytes(base.replace(b"www", b"ww2"))
    refused = subprocess.run(command.split(), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert refused.returncode != 0


def test_another_implementation_verifies_a_signature(folder: Path, signer: Signer) -> None:
    library = pytest.importorskip("http_message_signatures")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    x = base64.urlsafe_b64decode(str(published(folder)[0]["x"]) + "=")

    class Keys(library.HTTPSignatureKeyResolver):  # type: ignore[name-defined,misc]
        def resolve_public_key(self, key_id: str) -> Ed25519PublicKey:
            assert key_id == published(folder)[0]["kid"]
            return Ed25519PublicKey.from_public_bytes(x)

    class Message:
        method = "GET"
        url = "https://www.example.com/page?q=1"
        headers = dict(signer.headers(WallClock().now(), "www.example.com"))  # noqa: RUF012

    verifier = library.HTTPMessageVerifier(
        signature_algorithm=library.algorithms.ED25519, key_resolver=Keys()
    )
    (result,) = verifier.verify(Message())
    assert result.parameters["tag"] == "web-bot-auth"
    assert {'"@authority"', '"signature-agent"'} <= set(result.covered_components)


async def fetch(server: RawServer, path: str = "/", **options: object) -> Response:
    fetcher = HttpFetcher(
        WallClock(),
        ClientOptions(user_agent="mybot/1.0", allow_private=True, **options),  # type: ignore[arg-type]
    )
    try:
        await fetcher.fetch(Request(server.site + "/", server.site))
        return await fetcher.fetch(Request(server.site + path, server.site))
    finally:
        await fetcher.aclose()


async def test_requests_are_signed_for_the_host_they_go_to(signer: Signer) -> None:
    async with RawServer({"/": page(b"hello")}) as server:
        response = await fetch(server, signer=signer, sender="crawl@example.org")
    head = server.requests[-1].decode()
    assert "From: crawl@example.org\r\n" in head
    assert f'Signature-Agent: "{AGENT}"\r\n' in head
    headers = {
        name.lower(): value for name, _, value in (line.partition(": ") for line in head.split("\r\n"))
    }
    base, _ = signature_base(headers, headers["host"])
    assert f'"@authority": 127.0.0.1:{server.port}\n'.encode() in base
    assert response.status == 200


async def test_on_challenge_only_a_site_that_refuses_is_told_who_asks(signer: Signer) -> None:
    answers = {"/": page(b"hello"), "/closed": page(b"no", status="403 Forbidden")}
    async with RawServer(answers) as server:
        await fetch(server, signer=signer, signs_first=False)
        assert not any(b"Signature" in head for head in server.requests)
        await fetch(server, "/closed", signer=signer, signs_first=False)
    assert [b"Signature:" in head for head in server.requests[-3:]] == [False, False, True]


async def test_a_server_may_ask_for_a_signature(signer: Signer) -> None:
    asking = page(b"hello", 'Accept-Signature: sig1=("@authority");tag="web-bot-auth"')
    async with RawServer({"/": asking}) as server:
        await fetch(server, signer=signer, signs_first=False)
    assert [b"Signature:" in head for head in server.requests] == [False, True, True]


# -- keys that cannot be used -----


def job_with(folder: Path, **crawl: object) -> object:
    source = Source("the test")
    tables = {
        "crawl": {"identity": {"folder": str(folder)}, **crawl},
        "site": [{"url": "https://a.example/"}],
    }
    return build_job(convert(tables, source), source)


def test_a_key_that_others_can_read_is_refused(folder: Path) -> None:
    (folder / KEY_FILE).chmod(0o640)
    with pytest.raises(JobError, match="readable by other users"):
        job_with(folder)


def test_a_missing_key_is_refused(folder: Path) -> None:
    (folder / KEY_FILE).unlink()
    with pytest.raises(JobError, match="cannot be read"):
        job_with(folder)
    with pytest.raises(JobError, match="has no identity"):
        job_with(folder / "elsewhere")


def test_an_expired_key_is_refused_and_rotated(tmp_path: Path) -> None:
    init(tmp_path, "--valid", "1 s")
    with pytest.raises(JobError, match="expired"):
        load_signer(tmp_path, Instant(WallClock().now() + 2))
    init(tmp_path, "--rotate")
    keys = published(tmp_path)
    assert len(keys) == 2 or keys[0]["exp"] > WallClock().now() + 1000  # type: ignore[operator]
    load_signer(tmp_path, WallClock().now())


def test_a_damaged_key_is_not_quoted(folder: Path) -> None:
    secret = (folder / KEY_FILE).read_text()
    (folder / KEY_FILE).write_text(secret.replace("PRIVATE KEY", "SECRET KEY"))
    with pytest.raises(JobError, match="no Ed25519 key") as problem:
        job_with(folder)
    assert secret.splitlines()[1] not in str(problem.value)


def test_a_key_is_not_overwritten(folder: Path) -> None:
    before = (folder / KEY_FILE).read_bytes()
    result = CliRunner().invoke(
        headway, ["identity", "init", str(folder), "--agent", AGENT, "--contact", "crawl@example.org"]
    )
    assert result.exception is not None
    assert "has a key already" in str(result.exception)
    assert (folder / KEY_FILE).read_bytes() == before


@pytest.mark.parametrize(
    "agent", ["http://bot.example.org", "bot.example.org", "https://bot.example.org/x", ""]
)
def test_an_agent_is_an_https_origin(tmp_path: Path, agent: str) -> None:
    result = CliRunner().invoke(
        headway, ["identity", "init", str(tmp_path / "id"), "--agent", agent, "--contact", "a@example.org"]
    )
    assert "is not an origin" in str(result.exception)
    assert not (tmp_path / "id").exists()


# -- contact -----


def test_the_default_user_agent_names_the_contact_and_no_domain_of_others() -> None:
    source = Source("the test")
    tables = {"site": [{"url": "https://a.example/"}]}
    assert re.fullmatch(r"headway/[\w.]+", build_job(convert(tables, source), source).file.crawl.user_agent)
    with_mail = {"crawl": {"contact": "crawl@example.org"}, **tables}
    job = build_job(convert(with_mail, source), source)
    assert job.file.crawl.user_agent.endswith(" (+mailto:crawl@example.org)")
    assert job.client_options().sender == "crawl@example.org"
    with pytest.raises(JobError, match="neither an e-mail address"):
        build_job(convert({"crawl": {"contact": "me\r\nX: y"}, **tables}, source), source)
