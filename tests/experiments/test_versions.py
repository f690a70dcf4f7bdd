"""Every results file has a recorded version, and every record a file."""

from benchmarks import pages
from experiments import results, versions

ROWS = results.read(versions.TABLE)


def test_every_file_is_recorded_as_it_is_and_every_recorded_file_exists():
    """If this fails, run ``python -m experiments.versions`` and commit what it writes."""
    found = {path: versions.digest(path, (pages.ROOT / path).read_bytes()) for path in versions.files()}
    assert {row["file"]: row["content"] for row in ROWS} == found
    for row in ROWS:
        assert row["command"] == versions.command(row["file"])
        assert row["date"]
        assert row["version"]
        assert len(row["code"]) == 12


def test_the_page_shows_the_records():
    text = (pages.ROOT / versions.PAGE).read_text()
    assert pages.filled(text, "versions", versions.table(ROWS)) == text


def test_words_are_no_new_results_and_comments_no_new_code():
    assert versions.digest("a.csv", b"set,end\nmgr,0.5\n") == versions.digest("a.csv", b"end\n0.5\n")
    assert versions.digest("a.csv", b"0.5") != versions.digest("a.csv", b"0.6")

    def code(text):
        return versions.digest_code(lambda _: {"a.py": text})

    assert code(b'"""One."""\nx = 1  # why\n') == code(b'"""Two."""\n\nx = 1\n')
    assert code(b"x = 1\n") != code(b"x = 2\n")
