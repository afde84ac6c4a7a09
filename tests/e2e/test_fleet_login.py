"""A server that asks for a password and TLS: who has both is let in, who has not is told what is wrong."""

from __future__ import annotations

import io
import time
from contextlib import redirect_stderr

import pytest
import trustme
from tests.support.postgres import TemporaryPostgres, find_postgres

from headway.cli.frame import main
from headway.errors import StoreError
from headway.store.postgres.connection import Address
from headway.store.postgres.store import PostgresStore

RULES = "hostssl all all 127.0.0.1/32 scram-sha-256\n"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """The address of a crawl on such a server, and the file with the authority that vouches for it."""
    pytest.importorskip("psycopg")
    if find_postgres() is None:
        pytest.skip("PostgreSQL is not installed (Debian: postgresql)")
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    ca_file = tmp_path_factory.mktemp("tls") / "ca.pem"
    authority.cert_pem.write_to_path(ca_file)
    server = TemporaryPostgres(ssl="on")
    chain = b"".join(blob.bytes() for blob in certificate.cert_chain_pems)
    server.settings["ssl_cert_file"] = str(server.add_file("server.pem", chain))
    server.settings["ssl_key_file"] = str(server.add_file("server.key", certificate.private_key_pem.bytes()))
    with server:
        store = PostgresStore(server.address("guarded"))
        store.create(time.time(), {"site": [{"url": "http://127.0.0.1:1/"}]})
        store.asked(lambda run: run.execute("ALTER ROLE headway PASSWORD 'open sesame'"))
        store.close()
        server.let_in(RULES)
        yield f"{server.url}?sslmode=verify-full&sslrootcert={ca_file}#guarded", ca_file


def refused(address, tmp_path):
    with pytest.raises(SystemExit) as ended, redirect_stderr(io.StringIO()) as said:
        main(["collect", "--store", address, "-o", str(tmp_path / "c")])
    assert "Traceback" not in said.getvalue()
    return ended.value.code, said.getvalue()


def test_with_the_password_and_the_authority_the_line_is_encrypted(guarded, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", "open sesame")
    with Address.parse(guarded[0]).connect() as connection:
        query = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
        assert connection.execute(query).fetchone() == (True,)


def test_a_wrong_password_is_a_refused_login_and_not_shown(guarded, tmp_path):
    address = guarded[0].replace("headway@", "headway:guesswork@")
    code, said = refused(address, tmp_path)
    assert code == 5
    assert "refused the login" in said
    assert "guesswork" not in said


def test_a_missing_password_is_a_refused_login(guarded, tmp_path, monkeypatch):
    monkeypatch.delenv("PGPASSWORD", raising=False)
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "none"))
    code, said = refused(guarded[0], tmp_path)
    assert code == 5
    assert "refused the login" in said


def test_a_line_without_tls_is_refused(guarded, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", "open sesame")
    plain = guarded[0].partition("?")[0] + "?sslmode=disable#guarded"
    with pytest.raises(StoreError, match="refused the login"):
        Address.parse(plain).connect()


def test_a_server_without_a_valid_certificate_is_refused(guarded, tmp_path, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", "open sesame")
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(other)
    address = guarded[0].replace(str(guarded[1]), str(other))
    with pytest.raises(StoreError, match="certificate"):
        Address.parse(address).connect()
