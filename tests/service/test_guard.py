"""Who may come in."""

import pytest
from click.testing import CliRunner

from baryflow.cli import main
from baryflow.exceptions import InvalidInputError
from baryflow.service.guard import check_reach
from tests.service.conftest import post, serve

TOKEN = "a-token-of-some-length"  # noqa: S105 - opens nothing


@pytest.fixture(scope="module")
def guarded(model):
    with serve(model, token=TOKEN) as client:
        yield client


@pytest.fixture(scope="module")
def open_service(model):
    with serve(model) as client:
        yield client


@pytest.mark.parametrize(
    "sent",
    ["", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", TOKEN, "Bearer \xff",
     f"Bearer {TOKEN[:-1]}"],
)  # fmt: skip
def test_a_wrong_token_is_refused(guarded, rows, sent):
    headers = {"Authorization": sent.encode("latin-1")} if sent else {}
    del guarded.headers["Authorization"]
    try:
        for path in ("/v1/targets", "/v1/targets/a", "/v1/live", "/metrics"):
            refused = guarded.get(path, headers=headers)
            assert refused.status_code == 401
            assert refused.headers["www-authenticate"] == "Bearer"
        refused = guarded.post("/v1/targets/a/rows", json={"rows": rows[:1].tolist()}, headers=headers)
        assert refused.status_code == 401
        assert TOKEN not in refused.text
    finally:
        guarded.headers["Authorization"] = f"Bearer {TOKEN}"


def test_with_the_token_one_is_let_in(guarded, rows):
    assert post(guarded, "a", rows[:3]).status_code == 200
    assert guarded.get("/metrics").status_code == 200
    lower = guarded.get("/v1/targets", headers={"Authorization": f"bearer {TOKEN}"})
    assert lower.status_code == 200


@pytest.mark.parametrize("path", ["/", "/healthz", "/readyz", "/openapi.json"])
def test_some_need_no_token(guarded, path):
    assert guarded.get(path, headers={"Authorization": ""}).status_code == 200


def test_a_token_in_the_address_is_no_token(guarded):
    asked = guarded.get(f"/v1/targets?token={TOKEN}", headers={"Authorization": ""})
    assert asked.status_code == 401


@pytest.mark.parametrize(
    ("host", "status"),
    [("evil.example", 421), ("evil.example:8000", 421), ("localhost", 200), ("127.0.0.1:1", 200),
     ("[::1]:80", 200), ("[", 421)],
)  # fmt: skip
def test_without_a_token_names_that_others_can_register_lead_nowhere(open_service, host, status):
    assert open_service.get("/v1/targets", headers={"Host": host}).status_code == status


def test_without_a_token_pages_from_elsewhere_are_not_let_in(open_service):
    from_elsewhere = {"Origin": "https://evil.example"}
    assert open_service.get("/v1/targets", headers=from_elsewhere).status_code == 403
    own = {"Origin": str(open_service.base_url).rstrip("/")}
    assert open_service.get("/v1/targets", headers=own).status_code == 200
    form = {"Content-Type": "text/plain"}  # what a form can send without asking first
    assert open_service.post("/v1/targets/a/rows", content=b"{}", headers=form).status_code == 415


def test_browsers_load_nothing_from_elsewhere(open_service):
    headers = open_service.get("/").headers
    assert "default-src 'self'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.7", "example.org"])  # noqa: S104 - refused
def test_beyond_this_machine_a_token_is_needed(host):
    with pytest.raises(InvalidInputError, match="can be reached from elsewhere"):
        check_reach(host, None)
    check_reach(host, TOKEN)
    for near in ("127.0.0.1", "localhost", "::1", "[::1]"):
        check_reach(near, None)


def test_the_command_refuses_before_it_listens(model_file, tmp_path):
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "short").write_text("abc")
    for arguments, words in (
        (["--host", "0.0.0.0"], "can be reached from elsewhere"),  # noqa: S104 - refused
        (["--token-file", str(tmp_path / "empty")], "is empty"),
        (["--token-file", str(tmp_path / "short")], "use 16 or more"),
    ):
        done = CliRunner().invoke(
            main, ["serve", str(model_file), *arguments], env={"BARYFLOW_TOKEN": ""}
        )
        assert done.exit_code == 1
        assert words in done.output
