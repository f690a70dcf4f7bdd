import os

import pytest

from experiments import jobs


def count(n):
    for i in range(n):
        yield n, i, os.getpid()


def fail(n):
    yield n
    if n == 1:
        raise ValueError("one")


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_every_piece_of_work_comes_back(n_jobs):
    found = list(jobs.pieces(count, [3, 0, 2], n_jobs))
    assert sorted(piece[:2] for piece in found) == [(2, 0), (2, 1), (3, 0), (3, 1), (3, 2)]
    assert (os.getpid() in {pid for *_, pid in found}) == (n_jobs == 1)


def test_what_is_done_comes_back_before_an_error_is_raised():
    pieces = jobs.pieces(fail, [0, 1, 2], 2)
    assert {next(pieces), next(pieces), next(pieces)} == {0, 1, 2}
    with pytest.raises(ValueError, match="one"):
        next(pieces)
