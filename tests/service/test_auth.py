"""Access control: tokens, and requests from other sites."""

import asyncio

import pytest
from click.testing import CliRunner
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route, WebSocketRoute

from baryflow.cli import main
from baryflow.exceptions import InvalidInputError
from baryflow.service import create_app
from baryflow.service.auth import check_exposure
from tests.service.conftest import post, serve

TOKEN = "a-token-of-some-length"  # noqa: S105 - grants nothing
READ_TOKEN = "a-token-for-reading"  # noqa: S105 - grants nothing


@pytest.fixture(scope="module")
def protected(model):
    with serve(model, token=TOKEN, read_token=READ_TOKEN) as client:
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
def test_a_wrong_token_is_refused(protected, rows, sent):
    headers = {"Authorization": sent.encode("latin-1")} if sent else {}
    del protected.headers["Authorization"]
    try:
        for path in ("/v1/targets", "/v1/targets/a", "/v1/live", "/metrics"):
            refused = protected.get(path, headers=headers)
            assert refused.status_code == 401
            assert refused.headers["www-authenticate"] == "Bearer"
        refused = protected.post("/v1/targets/a/rows", json={"rows": rows[:1].tolist()}, headers=headers)
        assert refused.status_code == 401
        assert TOKEN not in refused.text
    finally:
        protected.headers["Authorization"] = f"Bearer {TOKEN}"


def test_the_list_of_targets_has_whether_the_token_is_read_only(protected, open_service):
    reader = {"Authorization": f"Bearer {READ_TOKEN}"}
    assert protected.get("/v1/targets", headers=reader).json()["read_only"] is True
    assert protected.get("/v1/targets").json()["read_only"] is False
    assert open_service.get("/v1/targets").json()["read_only"] is False
    assert protected.post("/v1/targets/a/labels", headers=reader).status_code == 403


def answer(app, path, method="GET", root_path="", kind="http", token=None):
    """Send a request to an ASGI application; return the status, or the code of a closed WebSocket."""
    headers = [(b"host", b"localhost")]
    if token is not None:
        headers.append((b"authorization", f"Bearer {token}".encode()))
    scope = {
        "type": kind, "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method,
        "scheme": "http", "path": root_path + path, "raw_path": (root_path + path).encode(),
        "query_string": b"", "root_path": root_path, "headers": headers, "subprotocols": [],
    }  # fmt: skip
    sent, coming = [], [{"type": "websocket.connect" if kind == "websocket" else "http.request"}]

    async def receive():
        return coming.pop() if coming else await asyncio.Event().wait()  # nothing else arrives

    async def send(message):
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    return sent[0].get("status", sent[0].get("code")), dict(sent[0].get("headers", ()))


async def _extra(_):
    return PlainTextResponse("extra")


async def _socket(websocket):
    await websocket.accept()


@pytest.fixture(scope="module")
def bare(model):
    """An application with tokens and extra routes; the journal is never replayed."""
    return create_app(
        model,
        token=TOKEN,
        read_token=READ_TOKEN,
        extra_routes=[
            Route("/extra", _extra, methods=["GET", "POST"]),
            WebSocketRoute("/socket", _socket),
        ],
    )


PREFIXES = {
    "unchanged": lambda app: (app, "", ""),
    "root_path": lambda app: (app, "/proxy", ""),
    "root_path without effect on the path": lambda app: (app, "/v1", ""),
    "mounted": lambda app: (Starlette(routes=[Mount("/sub", app)]), "", "/sub"),
    "mounted below a root_path": lambda app: (Starlette(routes=[Mount("/v1", app)]), "/proxy", "/v1"),
}
PROTECTED = [
    ("GET", "/v1/targets"), ("GET", "/v1/targets/a"), ("GET", "/v1/live"), ("GET", "/metrics"),
    ("POST", "/v1/targets/a/rows"), ("DELETE", "/v1/targets/a"), ("HEAD", "/v1/targets"),
    ("GET", "/extra"), ("GET", "/no/such/path"), ("OPTIONS", "/v1/targets"), ("OPTIONS", "/healthz"),
    ("POST", "/"), ("PURGE", "/metrics"), ("GET", "//v1/targets"), ("GET", "/v1//targets"),
    ("GET", "/V1/targets"), ("GET", "/v1/targets/"), ("GET", "/metrics/"), ("GET", "/healthz/"),
    ("GET", "/healthz/../v1/targets"), ("GET", "/./v1/targets"), ("GET", "/static"),
    ("GET", "/v1/targets\n"), ("GET", "/%76%31/targets"),
]  # fmt: skip


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize(("method", "path"), PROTECTED, ids=repr)
def test_every_route_needs_the_token_wherever_the_app_is_mounted(bare, prefix, method, path):
    app, root_path, before = PREFIXES[prefix](bare)
    status, headers = answer(app, before + path, method, root_path)
    assert status == 401
    assert headers[b"cache-control"] == b"no-store"
    for wrong in ("", "wrong", TOKEN + "x"):
        assert answer(app, before + path, method, root_path, token=wrong)[0] == 401
    assert answer(app, before + path, method, root_path, token=TOKEN)[0] != 401


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("path", ["/", "/healthz", "/openapi.json", "/static/live.js"])
def test_open_routes_need_no_token_wherever_the_app_is_mounted(bare, prefix, method, path):
    app, root_path, before = PREFIXES[prefix](bare)
    status, headers = answer(app, before + path, method, root_path)
    assert status == 200
    assert b"cache-control" not in headers


def test_static_paths_cannot_escape_their_folder(bare):
    assert answer(bare, "/static/../v1/targets")[0] == 404
    assert answer(bare, "/static/..%2fauth.py")[0] == 404


def test_websockets_of_extra_routes_need_the_token(bare):
    assert answer(bare, "/socket", kind="websocket")[0] == 1008
    assert answer(bare, "/socket", kind="websocket", token=READ_TOKEN)[0] == 1008
    assert answer(bare, "/socket", kind="websocket", token=TOKEN)[0] != 1008


def test_the_token_grants_access(protected, rows):
    assert post(protected, "a", rows[:3]).status_code == 200
    assert protected.get("/metrics").status_code == 200
    lower = protected.get("/v1/targets", headers={"Authorization": f"bearer {TOKEN}"})
    assert lower.status_code == 200


def test_a_read_only_token_may_read_everything_and_change_nothing(protected, rows):
    reader = {"Authorization": f"Bearer {READ_TOKEN}"}
    assert post(protected, "b", rows[:3]).status_code == 200
    for path in (
        "/v1/targets",
        "/v1/targets/b",
        "/v1/targets/b/view",
        "/v1/targets/b/why/1",
        "/metrics",
    ):
        assert protected.get(path, headers=reader).status_code == 200
    with protected.stream("GET", "/v1/live", headers=reader) as stream:
        assert stream.status_code == 200
    body = {"rows": rows[:1].tolist()}
    for refused in (
        protected.post("/v1/targets/b/rows", json=body, headers=reader),
        protected.delete("/v1/targets/b", headers=reader),
    ):
        assert refused.status_code == 403
        assert "read-only" in refused.json()["error"]
    assert protected.get("/v1/targets/b").json()["rows_seen"] == 3
    for wrong in (READ_TOKEN + "x", READ_TOKEN[:-1]):
        headers = {"Authorization": f"Bearer {wrong}"}
        assert protected.get("/v1/targets", headers=headers).status_code == 401


@pytest.mark.parametrize("method", ["POST", "DELETE", "PUT", "PATCH", "OPTIONS", "PURGE"])
def test_a_read_only_token_allows_get_and_head_on_every_route(bare, method):
    for path in ("/extra", "/v1/targets/a", "/no/such/path"):
        assert answer(bare, path, method, token=READ_TOKEN)[0] == 403
        for read in ("GET", "HEAD"):
            assert answer(bare, path, read, token=READ_TOKEN)[0] not in (401, 403)


def test_an_empty_token_grants_nothing(model):
    app = create_app(model, token="", read_token="r" * 16)
    for token in (None, "", " "):
        assert answer(app, "/metrics", token=token)[0] == 401


@pytest.mark.parametrize("token", [None, READ_TOKEN])
def test_a_read_only_token_needs_another_full_token(model, token):
    with pytest.raises(InvalidInputError, match="full token"):
        create_app(model, token=token, read_token=READ_TOKEN)


@pytest.mark.parametrize("path", ["/", "/healthz", "/readyz", "/openapi.json"])
def test_health_checks_page_and_description_need_no_token(protected, path):
    assert protected.get(path, headers={"Authorization": ""}).status_code == 200


def test_a_token_in_the_query_is_ignored(protected):
    asked = protected.get(f"/v1/targets?token={TOKEN}", headers={"Authorization": ""})
    assert asked.status_code == 401


@pytest.mark.parametrize(
    ("host", "status"),
    [("evil.example", 421), ("evil.example:8000", 421), ("localhost", 200), ("127.0.0.1:1", 200),
     ("[::1]:80", 200), ("[", 421)],
)  # fmt: skip
def test_without_a_token_host_names_that_can_be_registered_are_refused(open_service, host, status):
    assert open_service.get("/v1/targets", headers={"Host": host}).status_code == status


def test_without_a_token_cross_origin_requests_are_refused(open_service):
    foreign = {"Origin": "https://evil.example"}
    assert open_service.get("/v1/targets", headers=foreign).status_code == 403
    own = {"Origin": str(open_service.base_url).rstrip("/")}
    assert open_service.get("/v1/targets", headers=own).status_code == 200
    form = {"Content-Type": "text/plain"}  # a form can send this without a preflight request
    assert open_service.post("/v1/targets/a/rows", content=b"{}", headers=form).status_code == 415


def test_browsers_load_nothing_from_other_hosts(open_service):
    headers = open_service.get("/").headers
    assert "default-src 'self'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.7", "example.org"])  # noqa: S104 - refused
def test_listening_for_other_computers_requires_a_token(host):
    with pytest.raises(InvalidInputError, match="set a token"):
        check_exposure(host, None)
    with pytest.raises(InvalidInputError, match="plaintext"):
        check_exposure(host, TOKEN)
    check_exposure(host, TOKEN, encrypted=True)
    for near in ("127.0.0.1", "localhost", "::1", "[::1]"):
        check_exposure(near, None)


def test_the_command_checks_tokens_and_certificates_before_it_listens(model_file, tmp_path):
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "short").write_text("abc")
    (tmp_path / "full").write_text(TOKEN)
    full = str(tmp_path / "full")
    for arguments, reason in (
        (["--host", "0.0.0.0"], "set a token"),  # noqa: S104 - refused
        (["--host", "0.0.0.0", "--token-file", full], "--plaintext"),  # noqa: S104 - refused
        (["--host", "0.0.0.0", "--plaintext"], "set a token"),  # noqa: S104 - refused
        (["--token-file", str(tmp_path / "empty")], "is empty"),
        (["--token-file", str(tmp_path / "short")], "use 16 or more"),
        (["--token-file", full, "--read-token-file", str(tmp_path / "short")], "use 16 or more"),
        (["--read-token-file", full], "needs a full token"),
        (["--token-file", full, "--read-token-file", full], "two different"),
        (["--tls-key", full], "--tls-cert"),
        (["--tls-cert", full], "cannot load the TLS certificate"),
    ):
        done = CliRunner().invoke(
            main,
            ["serve", str(model_file), *arguments],
            env={"BARYFLOW_TOKEN": "", "BARYFLOW_READ_TOKEN": ""},
        )
        assert done.exit_code == 1
        assert reason in done.output
