"""Access, trust, and that no secret is shown.

The mock cluster speaks plain Kafka: TLS and SASL/PLAIN are those of the front before it.
"""

import contextlib
import logging

import pytest
import trustme

from baryflow.exceptions import InvalidInputError, UnreachableError
from baryflow.streams import Credentials, kafka, open_sink, open_source
from baryflow.streams.urls import Endpoint
from tests.streams.kafka_cluster import Cluster

SECRET = "hush-hush-7"  # noqa: S105 - of this test only
ROW = [(None, b'{"a": 1}')]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    ours, other = trustme.CA(), trustme.CA()
    ours.cert_pem.write_to_path(folder / "ours.pem")
    other.cert_pem.write_to_path(folder / "other.pem")
    for name in ("127.0.0.1", "elsewhere.example"):
        ours.issue_cert(name).private_key_and_cert_chain_pem.write_to_path(folder / f"{name}.pem")
    return folder


@pytest.fixture(scope="module")
def cluster(files):
    """TLS and a password."""
    with Cluster(cert=files / "127.0.0.1.pem", password=SECRET) as cluster:
        cluster.send("rows", ROW * 10)
        yield cluster


def known(files, password=SECRET, authority="ours"):
    return Credentials("plant", password, str(files / f"{authority}.pem"))


def test_valid_credentials_give_access(cluster, files):
    url = cluster.url("rows", scheme="kafka+ssl")
    source = open_source(url, columns=["a"], idle=5.0, credentials=known(files))
    assert len(source.read(10).rows) == 10
    source.close()
    sink = open_sink(cluster.url("out", scheme="kafka+ssl"), credentials=known(files))
    sink.write([{"a": 2}])
    sink.close()
    assert [one.value() for one in cluster.received("out")] == [b'{"a": 2}']


@pytest.mark.parametrize("opening", [open_sink, lambda *a, **k: open_source(*a, columns=["a"], **k)])
def test_a_wrong_password_is_one_line_without_any_password(cluster, files, opening, capfd, caplog):
    url = cluster.url("rows", scheme="kafka+ssl")
    with (
        caplog.at_level(logging.DEBUG),
        pytest.raises(UnreachableError, match="denies access") as e,
    ):
        opening(url, credentials=known(files, "not-it-99"))
    # The front, like a careless broker, reveals the right one.
    said = str(e.value) + repr(e.value.__cause__)
    for secret in ("not-it-99", SECRET):
        assert secret not in said
    assert "\n" not in str(e.value)
    assert "not-it-99" not in caplog.text
    assert capfd.readouterr() == ("", "")


def test_an_unknown_authority_is_not_trusted(cluster, files, capfd):
    for credentials in (known(files, authority="other"), Credentials("plant", SECRET)):
        with pytest.raises(UnreachableError, match="is not trusted"):
            open_source(cluster.url("rows", scheme="kafka+ssl"), columns=["a"], credentials=credentials)
    assert capfd.readouterr() == ("", "")


def test_a_certificate_for_another_host_is_not_trusted(files):
    with Cluster(cert=files / "elsewhere.example.pem") as cluster:
        cluster.send("rows", ROW)
        credentials = Credentials(ca_file=str(files / "ours.pem"))
        with pytest.raises(UnreachableError, match="is not trusted"):
            open_source(cluster.url("rows", scheme="kafka+ssl"), columns=["a"], credentials=credentials)


def test_an_absent_broker_or_a_wrong_protocol_is_reported(cluster, files, monkeypatch):
    monkeypatch.setattr(kafka, "PATIENCE", 1.0)

    def notices(url, **options):
        with contextlib.closing(open_source(url, columns=["a"], idle=0.1, **options)) as source:
            return " ".join(source.read(1).notices)

    assert "kafka+ssl://" in notices(cluster.url("rows"))
    ours = Credentials(ca_file=str(files / "ours.pem"))
    assert "may require a user" in notices(cluster.url("rows", scheme="kafka+ssl"), credentials=ours)
    with Cluster() as plain:
        assert "may not use TLS" in notices(plain.url("rows", scheme="kafka+ssl"))


def test_a_password_is_not_sent_unencrypted_by_default():
    credentials = Credentials("plant", SECRET)
    with pytest.raises(InvalidInputError, match="not encrypted") as e:
        open_source("kafka://nowhere.invalid/rows", columns=["a"], credentials=credentials)
    assert SECRET not in str(e.value)

    def settings(url):
        return kafka.settings(Endpoint.parse(url, credentials))

    asked = settings("kafka://a/rows?security=sasl_plaintext")
    assert asked["sasl.mechanism"] == "SCRAM-SHA-512"
    assert "sasl.password" not in settings("kafka://a/rows?security=plaintext")
    usual = settings("kafka+ssl://a/rows")
    assert (usual["security.protocol"], usual["sasl.mechanism"]) == ("sasl_ssl", "PLAIN")
    assert usual["enable.ssl.certificate.verification"] is True
    with pytest.raises(InvalidInputError, match="is encrypted"):
        settings("kafka+ssl://a/rows?security=sasl_plaintext")
    with pytest.raises(InvalidInputError, match="mechanism must be"):
        settings("kafka+ssl://a/rows?mechanism=GSSAPI")


def test_a_password_is_never_logged(caplog):
    with caplog.at_level(logging.DEBUG, "baryflow.kafka"):
        kafka.MaskingLogger(SECRET).log(logging.ERROR, "%s [%s] %s", "FAIL", "x", f"bad {SECRET}")
    assert [one.getMessage() for one in caplog.records] == ["FAIL [x] bad ***"]


def test_only_permanent_errors_end_a_run():
    from confluent_kafka import KafkaError

    monitor = kafka.ClusterMonitor(Endpoint.parse("kafka://a/rows"))
    monitor.on_error(KafkaError(KafkaError._TRANSPORT, "SSL handshake failed: Disconnected"))
    monitor.on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    monitor.check()
    assert monitor.away
    monitor.on_error(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "no"))
    with pytest.raises(UnreachableError, match="not permitted to use this topic"):
        monitor.check()
