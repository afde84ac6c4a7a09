"""A wrong address, another's crawl, another version: one clear line, an exit code, and nothing is broken."""

from __future__ import annotations

import io
from contextlib import redirect_stderr

import pytest

from headway.cli.frame import main
from headway.store.postgres.connection import Address
from headway.store.postgres.store import PostgresStore

SITE = "http://127.0.0.1:1/"


def refused(*args):
    """The exit code and what was said, which is a line."""
    with pytest.raises(SystemExit) as ended, redirect_stderr(io.StringIO()) as said:
        main([str(arg) for arg in args])
    assert "Traceback" not in said.getvalue()
    assert len(said.getvalue().splitlines()) <= 4, said.getvalue()
    return ended.value.code, said.getvalue()


@pytest.fixture
def crawl(postgres_store):
    """A crawl that has begun and of which nothing was fetched."""
    store = PostgresStore(postgres_store)
    store.create(1.0, {"site": [{"url": SITE}]})
    store.close()
    return postgres_store


def test_what_is_no_address_is_refused(tmp_path):
    code, said = refused("collect", "--store", "mysql://x/y", "-o", tmp_path / "c")
    assert code == 5
    assert "postgresql://user@host/database#name" in said


def test_a_name_that_cannot_be_one_is_refused(tmp_path):
    code, said = refused("collect", "--store", "postgresql://127.0.0.1/x#DROP TABLE", "-o", tmp_path / "c")
    assert code == 5
    assert "lower-case letters" in said


def test_a_server_that_is_not_there_is_named_without_the_password(tmp_path):
    address = "postgresql://me:secret@127.0.0.1:1/db#news"
    code, said = refused("collect", "--store", address, "-o", tmp_path / "c")
    assert code == 5
    assert "cannot be reached" in said
    assert "127.0.0.1:1" in said
    assert "secret" not in said


def test_a_missing_database_is_reported(postgres_server, tmp_path):
    address = postgres_server.url.rpartition("/")[0] + "/nowhere#news"
    code, said = refused("collect", "--store", address, "-o", tmp_path / "c")
    assert code == 5
    assert "the database does not exist" in said


def test_a_role_that_is_not_there_is_a_refused_login(postgres_server, tmp_path):
    address = postgres_server.url.replace("headway@", "nobody_known@") + "#news"
    code, said = refused("collect", "--store", address, "-o", tmp_path / "c")
    assert code == 5
    assert "refused the login" in said


def test_a_crawl_that_was_never_begun_cannot_be_joined(postgres_store, tmp_path):
    code, said = refused("collect", "--store", postgres_store, "-o", tmp_path / "c")
    assert code == 5
    assert "there is no crawl named" in said
    assert "headway crawl" in said


def test_a_crawl_of_other_sites_is_not_mixed_with(crawl, tmp_path):
    store = PostgresStore(crawl)
    store.asked(lambda run: run.execute("INSERT INTO site (site) VALUES ('http://other.example')"))
    store.asked(
        lambda run: run.execute("INSERT INTO task (site_id, position, seeds, weight) VALUES (1, 1, '[]', 1)")
    )
    store.close()
    code, said = refused("crawl", SITE, "--store", crawl, "--allow-private", "-o", tmp_path / "c")
    assert code == 1
    assert "other sites" in said
    assert "after the #" in said


def test_tables_of_another_version_are_left_alone(crawl, tmp_path):
    store = PostgresStore(crawl)
    store.asked(lambda run: run.execute("UPDATE version SET version = 999"))
    store.close()
    for command in (("collect", "--store", crawl), ("crawl", SITE, "--store", crawl)):
        code, said = refused(*command, "-o", tmp_path / "c")
        assert code == 5
        assert "version 999" in said
        assert "install the newer version of headway" in said


def test_a_collector_of_another_version_is_turned_away(crawl, tmp_path):
    store = PostgresStore(crawl)
    store.asked(
        lambda run: run.execute(
            "INSERT INTO collector (name, label, version, joined_at, until_at) "
            "VALUES ('old', '', '0.0.1', 0, extract(epoch FROM now()) + 60)"
        )
    )
    store.close()
    code, said = refused("collect", "--store", crawl, "-o", tmp_path / "c")
    assert code == 5
    assert "0.0.1" in said
    assert "install the same" in said


def test_a_folder_of_others_is_not_written_into(crawl, tmp_path):
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "mother.txt").write_text("Dear mother")
    code, said = refused("collect", "--store", crawl, "-o", tmp_path / "letters")
    assert code == 5
    assert "neither empty nor a collector's folder" in said


def test_a_lease_that_cannot_be_renewed_in_time_is_refused(crawl, tmp_path):
    code, _ = refused("collect", "--store", crawl, "--lease", "1 s", "-o", tmp_path / "c")
    assert code == 2


@pytest.mark.parametrize(
    ("text", "url", "name"),
    [
        ("postgresql://a@b/c#news", "postgresql://a@b/c", "news"),
        ("postgres://b/c", "postgres://b/c", "crawl"),
        (
            "postgresql://a@b:5433/c?sslmode=verify-full#n_1",
            "postgresql://a@b:5433/c?sslmode=verify-full",
            "n_1",
        ),
    ],
)
def test_an_address_is_a_url_and_a_name(text, url, name):
    address = Address.parse(text)
    assert (address.url, address.name) == (url, name)
