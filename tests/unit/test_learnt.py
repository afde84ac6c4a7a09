"""What crawls have learnt is kept for the next ones, whatever happens to the file."""

from __future__ import annotations

import contextlib
import sqlite3

import msgspec
import pytest

from headway.errors import StoreError
from headway.model.command import PageState, SaveServers, SaveSettled
from headway.model.page import Kind, Outcome, Page, Site
from headway.policy.prediction import Prediction, ServerTally
from headway.runtime.simulation import Wanted, simulate_run
from headway.store.learnt import VARIABLE, LearntStore, Levels, default_place
from headway.store.sqlite import SqliteStore
from headway.units import BytesPerSecond, Instant

SITE = Site("http://a.test")


@pytest.fixture
def run(tmp_path):
    """A run folder with one fetched page of 5,000 bytes in 2 seconds."""
    folder = tmp_path / "night"
    folder.mkdir()
    store = SqliteStore(folder / "crawl.sqlite")
    store.create(Instant(1.0), {})
    outcome = Outcome(Kind.FETCHED, 200, 5000, 2.0)
    settled = SaveSettled(Page(f"{SITE}/", SITE, 1), outcome, PageState.DONE, 0, Instant(9.0))
    store.commit([settled, SaveServers((("10.0.0.1 80", rates()),))], {})
    store.close()
    return folder


def rates() -> bytes:
    prediction = Prediction(BytesPerSecond(1e6))
    prediction.learn(Instant(0.0), "10.0.0.1 80", BytesPerSecond(5e5))
    ((_, packed),) = prediction.changed_rows()
    return packed


@pytest.fixture
def warnings():
    return []


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "learnt.sqlite"


def store_of(path, warnings, **options) -> LearntStore:
    return LearntStore(path, warnings.append, clock=lambda: 100.0, **options)


def test_the_next_run_starts_from_what_the_last_one_learnt(path, run, warnings):
    store_of(path, warnings).learn(run, Levels(0.7, 0.9))
    knowledge, levels = store_of(path, warnings).read([SITE, Site("http://never-seen.test")])
    (facts,) = knowledge.sites.values()
    assert (facts.data_bytes, facts.page_bytes, facts.rate_bytes_per_s) == (5000, 5000, 2500)
    assert knowledge.servers == (("10.0.0.1 80", rates()),)
    assert levels == Levels(0.7, 0.9)
    assert warnings == []


def test_a_run_without_levels_leaves_them_as_they_are(path, run, warnings):
    store_of(path, warnings).learn(run, Levels(0.7, 0.9))
    store_of(path, warnings).learn(run)
    assert store_of(path, warnings).read([])[1] == Levels(0.7, 0.9)


def test_nothing_is_known_at_first_and_nothing_is_made_by_reading(path, warnings):
    knowledge, levels = store_of(path, warnings).read([SITE])
    assert (knowledge.sites, knowledge.servers, levels) == ({}, (), Levels())
    assert not path.exists()


def test_without_a_file_nothing_is_kept(run, warnings):
    store = store_of(None, warnings)
    store.learn(run)
    assert store.read([SITE])[0].sites == {}


def test_a_run_that_is_named_counts_more_than_the_file(path, run, warnings):
    with_file = store_of(path, warnings, learn_from=run)
    knowledge, _ = with_file.read([SITE])
    assert knowledge.source == "run night"
    assert set(knowledge.sites) == {SITE}


@pytest.mark.parametrize("damage", [b"not a database" * 500, b"SQLite format 3\0" + b"\xff" * 4000])
def test_a_damaged_file_is_set_aside_with_a_warning_and_a_new_one_begun(path, run, warnings, damage):
    path.parent.mkdir()
    path.write_bytes(damage)
    store = store_of(path, warnings)
    assert store.read([SITE])[0].sites == {}
    (warning,) = warnings
    assert "damaged" in warning
    aside = path.with_name("learnt.sqlite.damaged-100")
    assert aside.read_bytes() == damage
    assert aside.name in warning
    store.learn(run)
    assert set(store.read([SITE])[0].sites) == {SITE}


def test_values_that_make_no_sense_are_left_out(path, run, warnings):
    store_of(path, warnings).learn(run, Levels(0.7, 0.9))
    with sqlite3.connect(path) as database:
        database.execute("UPDATE site SET data_bytes = 'many'")
        database.execute("UPDATE server SET rates = x'00'")
        database.execute("UPDATE level SET value = 'wide'")
    database.close()
    knowledge, levels = store_of(path, warnings).read([SITE])
    assert (knowledge.sites, levels) == ({}, Levels())
    prediction = Prediction(BytesPerSecond(1e6))
    prediction.restore(knowledge.servers)
    assert len(prediction) == 0


def test_a_file_of_a_newer_version_is_left_alone(path, run, warnings):
    store_of(path, warnings).learn(run)
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    assert store_of(path, warnings).read([SITE])[0].sites == {}
    assert "newer version" in warnings[0]


def test_a_place_that_cannot_be_written_is_a_warning(tmp_path, run, warnings):
    (tmp_path / "file").write_text("in the way")
    store_of(tmp_path / "file" / "learnt.sqlite", warnings).learn(run)
    assert len(warnings) == 1


def test_the_place_is_that_of_the_user_unless_a_variable_names_another(monkeypatch, tmp_path):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "mine"))
    assert default_place() == tmp_path / "mine"
    monkeypatch.setenv(VARIABLE, "")
    assert default_place() is None
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_place() == tmp_path / "headway" / "learnt.sqlite"


def test_a_tally_learns_the_mean_rate_of_a_minute():
    prediction = Prediction(BytesPerSecond(1e6))
    tally = ServerTally(prediction)
    for _ in range(10):
        tally.count("10.0.0.1 80", 1000, 0.01)
    ((server, _),) = tally.fold(Instant(0.0))
    assert server == "10.0.0.1 80"
    assert 1e5 < prediction.predict(Instant(0.0), server) < 1e6
    assert tally.fold(Instant(60.0)) == ()
    assert tally.due_at == 120.0


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE page SET duration_s = -7",
        "UPDATE page SET wire_bytes = 'much'",
        "UPDATE site SET site = CAST(x'ff41' AS TEXT)",
        "UPDATE crawl SET started_at = 9e300",
        "UPDATE crawl SET started_at = 4611686018427387904",
        "UPDATE crawl SET job = '[]'",
        "INSERT INTO robots (site_id, text) SELECT id, x'ff00' FROM site",
        "INSERT INTO sample (at, wire_bytes) VALUES ('noon', 5)",
        "UPDATE page SET links = x'ff'",
        "DROP TABLE page",
    ],
)
def test_rows_that_no_crawl_writes_are_named_and_left_as_they_are(run, change):
    """SQLite opens a database that was damaged or changed by hand as long as its pages hang together."""
    database = run / "crawl.sqlite"
    with contextlib.closing(sqlite3.connect(database)) as connection:
        job = {"crawl": {"bandwidth": "1 MB/s"}, "site": [{"url": f"{SITE}/"}]}
        connection.execute("UPDATE crawl SET job = ?", (msgspec.json.encode(job).decode(),))
        connection.commit()
        simulate_run(run, Wanted())  # it can be simulated before
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute(change)
        connection.commit()
    before = database.read_bytes()
    with pytest.raises(StoreError, match=r"crawl\.sqlite: "):
        simulate_run(run, Wanted())
    assert database.read_bytes() == before
