"""Rows from the variables of an OPC UA server, and records as variables."""

import asyncio
import json
import logging
import math
import random
import threading
import time
from datetime import UTC, datetime

import numpy as np
import pytest

from baryflow.alarms import AlarmCommand, AlarmConfig, Alarms
from baryflow.exceptions import InvalidInputError, StoppedError, UnreachableError
from baryflow.runtime.outbox import Outbox, SinkSender
from baryflow.runtime.store import Message
from baryflow.streams import Credentials, Endpoint, RetryPolicy, open_sink, open_source
from tests.streams.files import require

require("asyncua")

from asyncua import Client, ua  # noqa: E402
from asyncua.client.ua_session import UaSession  # noqa: E402
from asyncua.crypto.permission_rules import User, UserRole  # noqa: E402
from asyncua.server.user_managers import UserManager  # noqa: E402

from tests.streams.opcua_plant import Plant, free_port  # noqa: E402
from tests.streams.proxy import Proxy  # noqa: E402
from tests.waiting import PATIENCE, wait_until  # noqa: E402

BEGIN = 1_800_000_000
NODE = "?node=ns=2;s=Plant"


@pytest.fixture(scope="module")
def shared():
    plant = Plant(["a", "b"])
    yield plant
    plant.close()


@pytest.fixture
def plant(shared):
    """A plant whose time is later than in any test before."""
    shared.now = getattr(shared, "now", BEGIN) + 1_000_000
    return shared


def write_rows(plant, first, last, **status):
    """Write rows every ten seconds: column a is the number of the row, b a hundred more."""
    for number in range(first, last):
        moment = plant.now + 10 * number
        plant.write(("a", float(number), moment), ("b", 100.0 + number, moment))


def gather(source, count, seconds=300):
    """Return `count` rows with their times, all notices and the cursor."""
    rows, times, notices, until, cursor = [], [], [], time.monotonic() + seconds, None
    while len(rows) < count:
        assert time.monotonic() < until, (rows, notices)
        batch = source.read(count - len(rows), 0.1)
        rows += batch.rows.tolist()
        times += batch.times
        notices += batch.notices
        cursor = batch.cursor
    return rows, times, notices, cursor


def follow(url, **options):
    options = {"columns": ["a", "b"], "sample_interval": 10, "idle": 0.2} | options
    return open_source(url, **options)


def test_variables_under_a_node_are_columns(plant):
    write_rows(plant, 0, 1)
    source = follow(plant.url + NODE, columns=["b", "a"])
    try:
        assert len(source.read(1, 0.1).rows) == 0
        write_rows(plant, 1, 5)
        rows, times, notices, _ = gather(source, 4)
    finally:
        source.close()
    assert rows == [[100.0 + number, number] for number in range(4)]
    assert times == [times[0][:17] + "40Z", times[1], times[2], times[3]]
    assert notices == []


def test_tags_by_path_with_scale_and_without_columns(plant, tmp_path):
    write_rows(plant, 0, 1)
    tags = tmp_path / "tags.csv"
    tags.write_text("address,column,scale,offset\n2:Plant/2:b,hot,0.5,1\nns=2;s=a,cold,,\n")
    source = follow(plant.url, columns=None, tags=str(tags))
    try:
        assert source.columns == ["hot", "cold"]
        assert len(source.read(1, 0.1).rows) == 0
        write_rows(plant, 1, 2)
        rows, *_ = gather(source, 1)
    finally:
        source.close()
    assert rows == [[51.0, 0.0]]


@pytest.mark.parametrize("uncertain", ["missing", "good"])
def test_bad_values_are_missing_in_their_column_only(plant, uncertain):
    write_rows(plant, 0, 1)
    source = follow(f"{plant.url}{NODE}&uncertain={uncertain}")
    try:
        source.read(1, 0.1)
        moment = plant.now + 10
        plant.write(("a", 5.0, moment, "Bad"), ("b", 6.0, moment))
        plant.write(("a", 7.0, moment + 10, "Uncertain"), ("b", 8.0, moment + 10))
        write_rows(plant, 3, 5)
        rows, *_ = gather(source, 4)
    finally:
        source.close()
    seven = 7.0 if uncertain == "good" else math.nan
    np.testing.assert_equal(rows, [[0, 100], [math.nan, 6], [seven, 8], [3, 103]])


def test_missed_values_are_read_from_the_history(plant):
    write_rows(plant, 0, 1)
    source = follow(plant.url + NODE)
    source.read(1, 0.1)
    write_rows(plant, 1, 4)
    first, *_, cursor = gather(source, 3)
    source.close()
    write_rows(plant, 4, 40)
    source = follow(plant.url + NODE)
    try:
        source.seek(json.loads(json.dumps(cursor)))
        second, _, notices, _ = gather(source, 36)
    finally:
        source.close()
    assert [row[0] for row in first + second] == list(range(39))
    assert len(notices) == 1
    assert f"reading the history of {plant.url} since 20" in notices[0]


def test_rows_can_begin_in_the_history(plant):
    write_rows(plant, 0, 30)
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(plant.now + 100))
    source = follow(f"{plant.url}{NODE}&since={since}")
    try:
        rows, *_ = gather(source, 19)
    finally:
        source.close()
    assert [row[0] for row in rows] == list(range(10, 29))


def test_a_clock_makes_rows_while_nothing_changes(plant):
    write_rows(plant, 0, 1)
    source = follow(f"{plant.url}?node=ns=2;s=Plant&clock=ns=2;s=b", columns=["a"])
    try:
        source.read(1, 0.1)
        plant.write(("b", 0.0, plant.now + 32))
        rows, *_ = gather(source, 4)
    finally:
        source.close()
    assert rows == [[0.0]] * 4


def test_without_a_history_the_gap_is_reported():
    plant = Plant(["a", "b"], history=False)
    try:
        plant.now = BEGIN
        write_rows(plant, 0, 1)
        source = follow(plant.url + NODE)
        source.read(1, 0.1)
        write_rows(plant, 1, 4)
        *_, cursor = gather(source, 3)
        source.close()
        write_rows(plant, 4, 9)
        source = follow(plant.url + NODE)
        try:
            source.seek(cursor)
            batch = source.read(1, 0.1)
            write_rows(plant, 9, 11)
            rows, _, notices, _ = gather(source, 2)
        finally:
            source.close()
    finally:
        plant.close()
    assert [row[0] for row in rows] == [8, 9]
    reported = batch.notices + notices
    assert len(reported) == 1
    assert "5 instants from" in reported[0]
    assert "are missing: the server has no history of 2 tags" in reported[0]


def test_objects_under_a_node_are_targets():
    plant = Plant(["a"], targets=["pump7", "pump8"], history=False)
    try:
        plant.write(("pump7.a", 7.0, BEGIN), ("pump8.a", 8.0, BEGIN))
        source = follow(plant.url + NODE, columns=["a"], key="@node")
        try:
            source.read(1, 0.1)
            plant.write(("pump7.a", 7.5, BEGIN + 11))
            until, rows, keys = time.monotonic() + PATIENCE, [], []
            while len(rows) < 2 and time.monotonic() < until:
                batch = source.read(2, 0.1)
                rows, keys = rows + batch.rows.tolist(), keys + batch.keys
        finally:
            source.close()
    finally:
        plant.close()
    assert (rows[:2], keys[:2]) == ([[7.0], [8.0]], ["pump7", "pump8"])


def unusual_values(rng):
    """Return a value that a server should not send."""
    kinds = ua.VariantType
    return rng.choice([
        lambda: ua.Variant(rng.choice(["", "x", "12.5", "NaN", "\U0001f525" * 50]), kinds.String),
        lambda: ua.Variant([rng.random() for _ in range(rng.randrange(5))], kinds.Double, is_array=True),
        lambda: ua.Variant(None, kinds.Null),
        lambda: ua.Variant(rng.choice([math.nan, math.inf, -math.inf, 1e308, 5e-324]), kinds.Double),
        lambda: ua.Variant(rng.choice([2**64 - 1, 0]), kinds.UInt64),
        lambda: ua.Variant(rng.choice([True, False]), kinds.Boolean),
        lambda: ua.Variant(rng.randbytes(rng.randrange(20)), kinds.ByteString),
        lambda: ua.Variant(ua.NodeId("x", 2), kinds.NodeId),
        lambda: ua.Variant(ua.LocalizedText("3"), kinds.LocalizedText),
        lambda: ua.Variant(ua.QualifiedName("3", 2), kinds.QualifiedName),
        lambda: ua.Variant(ua.get_win_epoch(), kinds.DateTime),
        lambda: ua.Variant([[1.0, 2.0], [3.0, 4.0]], kinds.Double),
    ])()  # fmt: skip


def unusual_times(rng, now):
    from datetime import UTC, datetime, timedelta

    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return rng.choice([
        lambda: None,
        ua.get_win_epoch,
        lambda: datetime(9999, 12, 30, tzinfo=UTC),
        lambda: datetime(1969, 12, 31, tzinfo=UTC),
        lambda: epoch + timedelta(seconds=now + rng.uniform(-1e6, 1e6)),
        lambda: epoch + timedelta(seconds=now),
        lambda: epoch + timedelta(seconds=now + rng.uniform(0, 10)),
    ])()  # fmt: skip


def fuzz(plant, source, count, seed=0):
    """Write unusual values of both columns, then good ones; return the rows and all notices."""
    rng, statuses = random.Random(seed), list(ua.StatusCodes.__dict__.values())
    statuses = [code for code in statuses if isinstance(code, int)]
    rows, notices = [], []

    def look(limit=0.01):
        batch = source.read(1000, limit)
        rows.extend(batch.rows.tolist())
        notices.extend(batch.notices)

    for number in range(count):
        status = ua.StatusCode(rng.choice([0, 0, 0x480, rng.choice(statuses), rng.randrange(2**32)]))
        moment = unusual_times(rng, plant.now + number)
        value = ua.DataValue(unusual_values(rng), status, moment)
        plant.write((rng.choice("ab"), value, None))
        if number % 50 == 0:
            look()
    until = time.monotonic() + PATIENCE
    while source._sampler.counts["values"] < count + 2 and time.monotonic() < until:
        look()
    after = count // 10 + 1
    for _ in range(3):  # a misled clock recovers after some hundred values
        write_rows(plant, after, after + 300)
        after += 300
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and (not rows or rows[-1] != [after - 2.0, after + 98.0]):
            look()
        if rows and rows[-1] == [after - 2.0, after + 98.0]:
            break
    return np.array(rows), notices


def test_unusual_values_types_statuses_and_times_do_no_harm(plant):
    write_rows(plant, 0, 1)
    source = follow(plant.url + NODE, idle=0.05)
    try:
        source.read(1, 0.1)
        rows, notices = fuzz(plant, source, 500)
    finally:
        source.close()
    assert not np.isinf(rows).any()
    assert not any("lost the connection" in notice for notice in notices)
    # The last rows are as if nothing had happened.
    last = int(rows[-1, 0])
    assert last >= 349
    assert rows[-100:, 0].tolist() == list(range(last - 99, last + 1))


# ------------------------------------------------------------------------------------ not let in


class OnlyOperator(UserManager):
    def get_user(self, iserver, username=None, password=None, certificate=None):  # noqa: ARG002
        return User(UserRole.User) if (username, password) == ("operator", "s3cret-word") else None


def certify(folder, name, issuer=None):
    """Return the files of a certificate for OPC UA servers and clients."""
    import trustme

    authority = issuer or trustme.CA(key_type=trustme.KeyType.RSA)
    made = authority.issue_cert("127.0.0.1", common_name=name, key_type=trustme.KeyType.RSA)
    paths = [folder / f"{name}-{part}.pem" for part in ("cert", "key", "ca")]
    made.cert_chain_pems[0].write_to_path(paths[0])
    made.private_key_pem.write_to_path(paths[1])
    authority.cert_pem.write_to_path(paths[2])
    return [str(path) for path in paths]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A server with a user and security, and certificates: its own, ours, and an untrusted one."""
    folder = tmp_path_factory.mktemp("certificates")
    theirs, ours, untrusted = (certify(folder, name) for name in ("server", "client", "stranger"))

    async def prepare(server):
        server.iserver.user_manager = OnlyOperator()
        await server.load_certificate(theirs[0])
        await server.load_private_key(theirs[1])
        both = [ua.SecurityPolicyType.NoSecurity, ua.SecurityPolicyType.Basic256Sha256_SignAndEncrypt]
        server.set_security_policy(both)
        server.set_identity_tokens([ua.UserNameIdentityToken])

    plant = Plant(["a", "b"], prepare=prepare)
    plant.write(("a", 1.0, BEGIN), ("b", 2.0, BEGIN))
    yield plant, theirs, ours, untrusted
    plant.close()


def refused(url, credentials, **options):
    with pytest.raises(UnreachableError) as error:
        follow(url, credentials=credentials, **options).close()
    message = str(error.value)
    assert "s3cret" not in message
    assert "\n" not in message
    return message


def test_a_wrong_password_is_one_line_without_the_password(guarded, capfd, caplog):
    plant = guarded[0]
    with caplog.at_level(logging.DEBUG, "asyncua"):
        wrong = Credentials("operator", "s3cret-wrong")
        assert "denies access for 'operator' with this" in refused(plant.url + NODE, wrong)
        assert "denies anonymous access" in refused(plant.url + NODE, Credentials())
    assert "s3cret" not in caplog.text
    assert capfd.readouterr() == ("", "")


def test_security_with_a_trusted_certificate(guarded):
    plant, theirs, ours, _ = guarded
    url = f"{plant.url}{NODE}&security=Basic256Sha256&mode=SignAndEncrypt"
    for trusted in (theirs[0], theirs[2]):  # itself, and who signed it
        known = Credentials("operator", "s3cret-word", trusted, ours[0], ours[1])
        source = follow(url, credentials=known)
        try:
            assert source.read(1, 0.1).notices == []
        finally:
            source.close()


def test_an_untrusted_certificate_is_refused(guarded):
    plant, _, ours, untrusted = guarded
    url = f"{plant.url}{NODE}&security=Basic256Sha256"
    known = Credentials("operator", "s3cret-word", untrusted[2], ours[0], ours[1])
    assert "is not trusted: neither the certificate nor its issuer is in ca_file" in refused(url, known)


def test_certificates_are_verified(guarded, tmp_path):
    from baryflow.streams.opcua.connection import find_certificate_fault, read_certificates

    _, theirs, ours, _ = guarded
    (certificate,), authority = read_certificates(theirs[0]), read_certificates(theirs[2])
    assert find_certificate_fault(certificate, authority, "127.0.0.1") == ""
    assert (
        find_certificate_fault(certificate, authority, "10.0.0.1")
        == "it is for 127.0.0.1, not for 10.0.0.1"
    )
    assert "neither" in find_certificate_fault(certificate, read_certificates(ours[2]), "127.0.0.1")
    (tmp_path / "x.pem").write_text("nothing")
    with pytest.raises(InvalidInputError, match="must hold a certificate"):
        read_certificates(str(tmp_path / "x.pem"))


def test_security_that_is_not_offered(guarded):
    plant, theirs, ours, _ = guarded
    url = f"{plant.url}{NODE}&security=Aes256Sha256RsaPss"
    known = Credentials("operator", "s3cret-word", theirs[2], ours[0], ours[1])
    assert "does not offer Aes256Sha256RsaPss" in refused(url, known)


def test_nodes_that_do_not_exist_are_named(plant, tmp_path):
    write_rows(plant, 0, 1)
    tags = tmp_path / "tags.csv"
    tags.write_text("address,column\nns=2;s=a,a\nns=2;s=zz,b\n")
    assert "has no node 'ns=2;s=zz' (BadNodeIdUnknown)" in refused(plant.url, None, tags=str(tags))
    assert "has no variable c; it has a, b" in refused(plant.url + NODE, None, columns=["a", "c"])
    assert "has no node '2:Nowhere'" in refused(plant.url + "?node=2:Nowhere", None)


def test_a_source_waits_for_an_absent_server(caplog):
    plant = Plant(["a"], history=False)
    try:
        plant.stop()
        found = []
        waiting = threading.Thread(
            target=lambda: found.append(
                open_source(plant.url + NODE, columns=["a"], sample_interval=1.0)
            )
        )
        waiting.start()
        wait_until(lambda: "there is no OPC UA server at" in caplog.text)
        plant.start()
        waiting.join()
        assert found[0].wanted == ["a"]
        found[0].close()
    finally:
        plant.close()


@pytest.mark.parametrize(
    ("url", "options", "words"),
    [
        ("opc.tcp://h/x?node=i=1", {"sample_interval": None}, "--sample-interval"),
        ("opc.tcp://h/x", {}, "either with a tag list, or with"),
        ("opc.tcp://h/x?nodes=i=1", {}, "has no option 'nodes'"),
        ("opc.tcp://h/x?node=i=1", {"time": "t"}, "plant's time"),
        ("opc.tcp://h/x?node=i=1", {"key": "k"}, "got 'k'"),
        ("opc.tcp://h/x?node=i=1&uncertain=maybe", {}, "uncertain must be"),
        ("opc.tcp://h/x?node=i=1&since=noon", {}, "since must be a time"),
        ("opc.tcp://h/x?node=i=1&security=Basic128", {}, "security must be one of"),
        ("opc.tcp://h/x?node=i=1&security=Basic256Sha256", {}, "client certificate"),
        ("opc.tcp://h/x?node=i=1", {"credentials": Credentials("u", "s3cret")}, "unencrypted"),
    ],
)
def test_invalid_arguments_are_refused_before_connecting(url, options, words):
    with pytest.raises(InvalidInputError, match=words):
        follow(url, **options)


# ------------------------------------------------------------------------------------------- sinks

RECORDS = [
    {"position": 1, "time": "2026-01-31T12:00:00Z", "label": "normal", "probability": 0.75, "key": "p7"},
    {"position": 2, "time": "2026-01-31T12:00:10Z", "label": "worn", "probability": 0.5, "key": "p7"},
]


def read_values(url, *ids):
    async def look():
        async with Client(url) as client:
            return [await client.get_node(one).read_data_value() for one in ids]

    return asyncio.run(look())


def test_records_are_variables_of_our_own_server():
    url = f"opc.tcp://127.0.0.1:{free_port()}/baryflow"
    sink = open_sink(f"{url}?serve")
    try:
        sink.write(RECORDS)
        label, chance = read_values(url, "ns=2;s=baryflow.p7.label", "ns=2;s=baryflow.p7.probability")
        assert (label.Value.Value, chance.Value.Value) == ("worn", 0.5)
        assert label.SourceTimestamp.isoformat() == "2026-01-31T12:00:10+00:00"
        with pytest.raises(UnreachableError, match="cannot listen"):
            open_sink(f"{url}?serve")
    finally:
        sink.close()


def test_our_own_server_grants_access_to_its_user_only(guarded):
    _, theirs, ours, _ = guarded
    url = f"opc.tcp://127.0.0.1:{free_port()}/baryflow"
    known = Credentials("operator", "s3cret-word", None, theirs[0], theirs[1])
    sink = open_sink(f"{url}?serve", credentials=known)
    try:
        sink.write(RECORDS)
        node = "?node=ns=2;s=baryflow.p7&security=Basic256Sha256"
        follow(
            url + node,
            columns=["probability"],
            credentials=Credentials("operator", "s3cret-word", theirs[2], ours[0], ours[1]),
        ).close()
        wrong = Credentials("operator", "s3cret", theirs[2], ours[0], ours[1])
        assert "denies access for 'operator'" in refused(url + node, wrong)
        plain = "?node=ns=2;s=baryflow.p7"
        assert "does not offer connections without security" in refused(url + plain, Credentials())
    finally:
        sink.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "plant.example"])  # noqa: S104
def test_a_public_server_needs_certificates(host):
    with pytest.raises(InvalidInputError, match="reachable from other computers"):
        open_sink(f"opc.tcp://{host}:4841/baryflow?serve", credentials=Credentials("u", "p"))


def test_records_are_written_to_existing_variables():
    async def prepare(server):
        server.iserver.allow_remote_admin = True

    plant = Plant(["label", "probability"], prepare=prepare, history=False)
    try:

        async def allow():
            for node in plant.nodes.values():
                await node.set_writable()

        plant.loop.call(allow())
        plant.write(("label", "", BEGIN))
        sink = open_sink(plant.url + NODE)
        try:
            sink.write(
                [{name: value for name, value in one.items() if name != "key"} for one in RECORDS]
            )
            sink.flush()
            (chance,) = read_values(plant.url, "ns=2;s=probability")
        finally:
            sink.close()
        with pytest.raises(UnreachableError, match="no node '2:Nowhere'"):
            open_sink(plant.url + "?node=2:Nowhere")
    finally:
        plant.close()
    assert chance.Value.Value == 0.5


ALARM = {"event": "alarm", "position": 7, "time": "2026-01-31T12:00:00Z", "level": 2.0}


def writable_plant(names=("level", "probability"), **options):
    """A plant whose variables clients may write; also after a restart."""

    class Writable(Plant):
        async def _fill(self, folder, prefix):
            await super()._fill(folder, prefix)
            for node in self.nodes.values():
                await node.set_writable()

    return Writable(names, history=False, **options)


def level_of(plant):
    return plant.loop.call(plant.nodes["level"].read_value())


def test_a_silent_server_costs_one_timeout_for_all_records(monkeypatch, caplog):
    monkeypatch.setattr("baryflow.streams.opcua.connection.TIMEOUT", 0.5)
    asked, ask = [], UaSession.write_attributes

    async def count(*arguments):
        asked.append(arguments)
        return await ask(*arguments)

    monkeypatch.setattr(UaSession, "write_attributes", count)
    plant = writable_plant()
    try:
        with Proxy(plant.port) as proxy:
            url = plant.url.replace(str(plant.port), str(proxy.port)) + NODE
            sink = open_sink(Endpoint.parse(url, policy=RetryPolicy(grace=0.0)))
            sink.stop_when(lambda: True)
            proxy.cut()  # accepts connections and never answers
            sink.write([ALARM] * 20)
            assert len(asked) == 1
            with pytest.raises(StoppedError):  # a connection that does not open
                sink.flush()
            assert "20 records" in caplog.text
            assert len(asked) == 1
            proxy.heal()
            sink.close()
            assert level_of(plant) == 2.0
    finally:
        plant.close()


def test_a_refused_write_names_the_node_and_the_code():
    plant = Plant(["level", "probability"], history=False)  # nobody may write its variables
    try:
        sink = open_sink(plant.url + NODE)
        with pytest.raises(UnreachableError, match=r"s=level \(BadUserAccessDenied"):
            sink.write([ALARM])
        sink.close(finished=False)
    finally:
        plant.close()


def test_alarms_wait_in_the_outbox_until_the_server_has_them(tmp_path, caplog):
    plant = writable_plant()
    try:
        sender = SinkSender("plant", lambda: open_sink(plant.url + NODE))
        outbox = Outbox([sender], pauses=(0.05, 0.1))
        plant.stop()
        outbox.send([Message("", 1, 1, 0, "alarms", "one", ALARM)], lambda *_: None)
        wait_until(lambda: "retrying" in caplog.text)
        assert len(outbox) == 1
        plant.start()
        wait_until(lambda: not len(outbox))
        assert level_of(plant) == 2.0
        outbox.close()
    finally:
        plant.close()


def test_a_sink_needs_a_node_or_serve():
    with pytest.raises(InvalidInputError, match="choose where to write records"):
        open_sink("opc.tcp://127.0.0.1/x")


class Conditions:
    """Events of alarms, as a client gets them."""

    def __init__(self):
        self.found = []

    def event_notification(self, event):
        self.found.append(event)

    async def follow(self, url, n, act=None, refresh=False):
        """Subscribe, act, and wait for `n` events."""
        async with Client(url) as client:
            subscription = await client.create_subscription(50, self)
            await subscription.subscribe_alarms_and_conditions(evtypes=ua.ObjectIds.AlarmConditionType)
            if refresh:
                kind = client.get_node(ua.NodeId(ua.ObjectIds.ConditionType))
                method = ua.NodeId(ua.ObjectIds.ConditionType_ConditionRefresh)
                number = ua.Variant(subscription.subscription_id, ua.VariantType.UInt32)
                await kind.call_method(method, number)
            if act is not None:
                await asyncio.to_thread(act)
            end = time.monotonic() + PATIENCE
            while len(self.found) < n and time.monotonic() < end:
                await asyncio.sleep(0.02)


def test_alarms_are_conditions_of_our_own_server():
    config = AlarmConfig.from_table({"on-delay": 1, "off-delay": 1, "priority": "high"})
    alarms, names, client = Alarms(config), ["normal", "leak"], Conditions()

    def write(changes):
        for change in changes:
            sink.write([{"event": "alarm", "message": change.message, "key": "p7", **change.details}])

    def happen():
        write(alarms.update(1, "2026-01-01T00:00:00Z", "leak", names, [0.1, 0.9]))
        write(alarms.apply(AlarmCommand("acknowledge", "leak", by="ada", comment="on it"), names))

    def clear():
        write(alarms.update(2, "2026-01-01T00:01:00Z", "normal", names, [0.9, 0.1]))

    url = f"opc.tcp://127.0.0.1:{free_port()}/plant"
    sink = open_sink(f"{url}?serve")
    try:
        asyncio.run(client.follow(url, 2, happen))
        asyncio.run(client.follow(url, 3, refresh=True))  # what is active, to those who come later
        asyncio.run(client.follow(url, 4, clear))
    finally:
        sink.close()
    states = [
        (getattr(one, "ActiveState/Id"), getattr(one, "AckedState/Id"), one.Retain)
        for one in client.found
    ]
    raised, seen, cleared = (True, False, True), (True, True, True), (False, True, False)
    assert states == [raised, seen, seen, cleared]
    first, second, *_ = client.found
    assert (first.ConditionName, first.Severity, first.SourceName) == ("leak", 700, "p7")
    assert first.Message.Text == "high alarm 1: leak, probability 90%"
    assert first.Time == datetime(2026, 1, 1, tzinfo=UTC)
    assert (second.Comment.Text, second.ClientUserId) == ("on it", "ada")
