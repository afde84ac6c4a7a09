"""Lists of sites in files: every wrong line is named, and nothing starts half."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway.config.job import Job, build_job
from headway.config.reading import Source, convert
from headway.config.site_list import SiteList
from headway.errors import JobError
from headway.model.page import Page, PageKey, Site
from headway.runtime.runtime import check_fits, machine_bytes, needed_bytes


def job_from(path: Path | str, *, streams: bool = False, sites: tuple[str, ...] = ()) -> Job:
    source = Source("job.toml")
    tables = {"crawl": {"sites_from": str(path)}, "site": [{"url": url} for url in sites]}
    return build_job(convert(tables, source), source, streams=streams)


def written(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def refusal_of(path: Path, **options: tuple[str, ...]) -> list[str]:
    with pytest.raises(JobError) as refused:
        job_from(path, **options)  # type: ignore[arg-type]
    return str(refused.value).splitlines()


def test_a_csv_has_the_keys_of_a_site_as_columns_in_any_order(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "sites.csv",
        "weight,url,deadline,data,cap,max_pages,seeds\n"
        "2,https://a.test/,2 h,50 MB,1 Mbit/s,7,https://a.test/x https://a.test/y\n"
        ",https://b.test/,90,,,,",
    )
    first, second = job_from(path).sites
    assert (first.site, first.deadline, first.weight, first.max_pages) == ("https://a.test", "2 h", 2.0, 7)
    assert (first.expected_bytes, first.cap_bytes_per_s) == (50_000_000, 125_000.0)
    assert [page.url for page in first.seeds] == ["https://a.test/", "https://a.test/x", "https://a.test/y"]
    assert (second.site, second.deadline, second.weight) == ("https://b.test", "90.0 s", 1.0)


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
@pytest.mark.parametrize("begin", ["", "\ufeff"])
def test_a_text_has_a_url_on_each_line_and_further_urls_of_a_site_are_seeds(
    tmp_path: Path, begin: str, end: str
) -> None:
    text = f"{begin}# mine\nhttps://a.test/\n\nhttps://b.test/\r\nhttps://a.test/two{end}"
    job = job_from(written(tmp_path, "sites.txt", text))
    assert [wish.site for wish in job.sites] == ["https://a.test", "https://b.test"]
    assert [page.url for page in job.sites[0].seeds] == ["https://a.test/", "https://a.test/two"]


def test_a_parquet_file_and_a_toml_file_give_the_same_sites(tmp_path: Path) -> None:
    columns = {"url": ["https://a.test/", "https://b.test/"], "weight": [2.0, None], "max_pages": [None, 3]}
    pq.write_table(pa.table(columns), tmp_path / "sites.parquet")
    toml = '[[site]]\nurl = "https://a.test/"\nweight = 2\n[[site]]\nurl = "https://b.test/"\nmax_pages = 3\n'
    assert job_from(tmp_path / "sites.parquet").sites == job_from(written(tmp_path, "s.toml", toml)).sites


def test_standard_input_may_be_a_table_or_a_list_of_urls(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("url,weight\nhttps://a.test/,2\n", "https://a.test/\n"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert [wish.site for wish in job_from("-").sites] == ["https://a.test"]


def test_the_first_ten_wrong_lines_are_named_and_how_many_more_there_are(tmp_path: Path) -> None:
    lines = ["url,weight", "https://a.test/,1", *(f"ftp://{number}.test/," for number in range(25))]
    told = refusal_of(written(tmp_path, "sites.csv", "\n".join(lines)))
    assert told[0].endswith("25 lines are wrong, so nothing was started:")
    assert [line.split(":")[0] for line in told[1:11]] == [f"  line {number}" for number in range(3, 13)]
    assert told[11:] == ["  and 15 more"]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("mailto:x@a.test,", "is not an http or https URL"),
        ("javascript:alert(1),", "is not an http or https URL"),
        (",2", "the URL is missing"),
        ("https://first.test/,", "https://first.test/ is there already, in line 2"),
        ("https://first.test/other,2", "https://first.test is there already"),
        ("https://job.test/x,", "https://job.test is in the job file already"),
        ("https://c.test/,much", "weight: 'much' is not a number"),
        ("https://c.test/,-1", "weight"),
        ("https://c.test/,1,2", "it has 3 fields, and the header has 2"),
        ('"https://c.test/,1', "it is not CSV"),
        ("https://" + "x" * 3000 + ".test/,", "..."),
    ],
)
def test_a_wrong_line_is_named_with_its_number_and_the_rest_is_read(
    tmp_path: Path, line: str, problem: str
) -> None:
    text = f"url,weight\nhttps://first.test/,\n{line}\nhttps://last.test/,1"
    told = refusal_of(written(tmp_path, "sites.csv", text), sites=("https://job.test/",))
    assert told[0].endswith("1 line is wrong, so nothing was started:")
    assert told[1].startswith("  line 3: ")
    assert problem in told[1]
    assert len(told[1]) < 400


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.csv", "uri\nhttps://a.test/", "there is no column 'uri'; did you mean 'url'?"),
        ("a.csv", "url,url\nx,y", "appears twice"),
        ("a.csv", "weight\n2", "the column 'url' is missing"),
        ("a.csv", "url\n", "names no site"),
        ("a.txt", "", "names no site"),
        ("a.toml", "[[site]\n", "not valid TOML"),
        ("a.toml", "[crawl]\n", "only [[site]] tables"),
        ("a.parquet", "no", "not valid Parquet"),
        ("a.txt", b"https://a.test/\n\xff\xfe\n", "line 2: it is not text in UTF-8"),
        ("a.txt", "x" * 3_000_000, "line 1: the line is longer than 1 MiB"),
    ],
)
def test_a_list_that_cannot_be_read_is_refused(
    tmp_path: Path, name: str, text: str | bytes, problem: str
) -> None:
    assert problem in "\n".join(refusal_of(written(tmp_path, name, text)))


def test_a_list_that_is_not_there_or_is_a_folder_is_refused(tmp_path: Path) -> None:
    assert "there is no such list" in refusal_of(tmp_path / "none.csv")[0]
    assert "is a folder" in refusal_of(tmp_path)[0]


def test_a_long_list_stays_in_its_file_and_is_read_when_it_is_needed(tmp_path: Path) -> None:
    lines = ["url,deadline", *(f"https://site{number}.test/,{number + 60}" for number in range(6000))]
    path = written(tmp_path, "sites.csv", "\n".join(lines))
    job = job_from(path, streams=True, sites=("https://job.test/",))
    assert (len(job.sites), job.site_count, job.has_deadlines) == (1, 6001, True)
    assert job.strategy == "deadline"
    assert "site7.test" in job.scope.hosts
    assert job.scope.judge(Page("https://other.test/", Site("https://other.test"), PageKey(1))) is not None
    wishes = list(job.wishes())
    assert [wish.site for wish in wishes[:2]] == ["https://job.test", "https://site0.test"]
    assert len(wishes) == 6001
    path.write_text("https://other.test/\n")
    with pytest.raises(JobError, match="changed after it was checked"):
        list(job.wishes())


def test_a_job_that_does_not_fit_into_its_memory_is_refused_with_the_figures() -> None:
    source = Source("job.toml")
    sites = [{"url": f"https://site{number}.test/"} for number in range(20)]
    tables = {"crawl": {"memory": "50 MB"}, "site": sites}
    small = build_job(convert(tables, source), source)
    with pytest.raises(
        JobError, match=r"20 sites needs about \d+.* MB of memory, and memory = '50 MB' allows 50"
    ):
        check_fits(small)
    roomy = build_job(convert({**tables, "crawl": {"memory": "1 GB"}}, source), source)
    check_fits(roomy)
    assert needed_bytes(small) == needed_bytes(roomy)


def test_a_job_that_fits_into_the_machine_needs_no_word_about_memory(tmp_path: Path) -> None:
    job = job_from(written(tmp_path, "sites.txt", "https://a.test/"))
    assert needed_bytes(job) < machine_bytes()
    check_fits(job)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text=st.binary(max_size=400), suffix=st.sampled_from([".csv", ".txt", ".tsv", ".toml", ".parquet"]))
def test_any_bytes_are_a_list_or_are_refused_in_words(tmp_path: Path, text: bytes, suffix: str) -> None:
    path = tmp_path / f"list{suffix}"
    path.write_bytes(text)
    listed = SiteList(str(path))
    refusal = ""
    try:
        listed.check(lambda fields: None)
    except JobError as problem:
        refusal = str(problem)
    assert str(path) in refusal if refusal else listed.sites > 0
