"""Kill a run with labels, alarms and commands between its rows, and compare it with an undisturbed run.

A transport sends rows, labels and commands to a run and receives its alarms; see :class:`Transport`.
Labels are sent long before their rows, so that both runs learn them at the same rows. Commands arrive
while the run is killed. They are about a class that is never diagnosed, so the other alarms do not
depend on when they arrive.
"""

import contextlib
import json
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd

from baryflow import OnlineDaDiL, load
from baryflow.datasets import make_domains
from baryflow.runtime import Store
from baryflow.streams import open_source
from baryflow.streams.urls import Credentials
from tests.streams.run_process import (
    COLUMNS,
    FILES,
    RunProcess,
    kill_again_and_again,
    make_record,
    read_records,
)
from tests.waiting import wait_until

#: The class that is never diagnosed.
SILENT = "3"
CONFIGURATION = f"""
[alarms]
normal = ["0"]
on-delay = 2
off-delay = 2
chatter = 0
flood = 0
probability = 0.5

[alarms.classes.{SILENT}]
on-delay = 1000000
"""
#: One row in so many has a label, which is sent so many rows before it; rows between two commands.
LABELLED, LEAD, BETWEEN = 7, 600, 10
#: Rows that the run learns from at a time.
BATCH = 8
#: Classes of the rows, and how many come in a row.
ORDER, IN_A_ROW = (0, 1, 0, 2), 20
MODEL = "after.bary"
#: Events that do not depend on how rows are delivered and how often the run was killed.
KINDS = ("batch", "column", "drift", "label")


class Transport:
    """What a run is connected to.

    Attributes
    ----------
    url, labels, commands : str
        What the run reads.
    alarms, options : sequence of str
        Options of the run: where alarms go, and others.
    environment : dict
    unfinished : int
        Rows at the end that have no prediction yet.
    """

    environment, options, unfinished = {}, (), 0

    def send_row(self, number, row):
        raise NotImplementedError

    def send_label(self, record):
        raise NotImplementedError

    def send_command(self, record):
        raise NotImplementedError

    def received(self):
        """Return the alarms that were received, as records."""
        raise NotImplementedError


def prepare(folder):
    """Save a model of four classes, and return rows in which two of them follow the first in turn."""
    problem = make_domains(n_sources=3, n_classes=4, n_features=4, n_per_class=100, random_state=0)
    model = OnlineDaDiL(classifier="linear", validate=False, keep_sources=False, random_state=0)
    model.fit(pd.DataFrame(problem.X, columns=COLUMNS), problem.y, sample_domain=problem.domain)
    model.save(folder / "model.bary")
    (folder / "baryflow.toml").write_text(CONFIGURATION)
    found = model.predict(pd.DataFrame(problem.X_target, columns=COLUMNS))
    by_class = [problem.X_target[np.flatnonzero(found == code)[:IN_A_ROW]] for code in range(3)]
    return np.concatenate([by_class[code] for code in ORDER])


def label_of(number):
    return {"time": str(number), "label": ORDER[number // IN_A_ROW % len(ORDER)]}


def command_of(number):
    action = "unshelve" if number % 2 else "shelve"
    duration = {} if number % 2 else {"for": "1000000 rows"}
    return {"action": action, "alarm": SILENT, "comment": f"command {number}", **duration}


class Sending:
    """Sends rows at a rate per second, with labels and commands; a context manager."""

    def __init__(self, transport, rows, rate):
        self.transport, self.rows, self.rate = transport, rows, rate
        self.n_rows = self.n_commands = 0
        self.n_labels = send_labels(transport, 0, LEAD)
        self.stopped = False
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        while not self.stopped:
            self.n_labels += send_labels(self.transport, self.n_rows + LEAD, self.n_rows + LEAD + 1)
            if self.n_rows % BETWEEN == 0:
                self.transport.send_command(command_of(self.n_commands))
                self.n_commands += 1
            self.transport.send_row(self.n_rows, make_record(self.rows, self.n_rows))
            self.n_rows += 1
            time.sleep(1.0 / self.rate)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.stopped = True
        self._thread.join()


def send_labels(transport, start, stop):
    """Send the labels of some rows, and return how many there are."""
    some = [number for number in range(start, stop) if number % LABELLED == 0]
    for number in some:
        transport.send_label(label_of(number))
    return len(some)


def wait_for_labels(folder, transport, n_labels):
    """Follow until all labels have come, but no rows."""

    def have_come():
        with follow(folder, transport) as one:
            before = one.output().count("following")  # in lives before
            wait_until(lambda: one.output().count("following") > before, one.output)
            time.sleep(2.0)
            one.end()
        with contextlib.closing(Store(folder / "checkpoint")) as store:
            return len(store.get("state")["labels"]) == n_labels

    wait_until(have_come, "the labels do not come")


def follow(folder, transport):
    options = [
        *transport.options, "--labels", transport.labels, "--alarm-commands", transport.commands,
        *transport.alarms, "--save", str(folder / MODEL), "--batch-size", str(BATCH),
    ]  # fmt: skip
    environment = transport.environment | {"BARYFLOW_CONFIG": str(folder.parent / "baryflow.toml")}
    return RunProcess(folder, transport.url, environment, *options)


def finish(folder, transport, n_rows, n_commands):
    """Follow until all rows are predicted and all alarms have arrived, and end in order."""

    def is_complete():
        assert last.process.poll() is None, last.output()
        events = read_events(folder)
        n_changes = sum(one["event"] == "alarm" for one in events)
        n_done = len(of_commands(events))
        return n_done >= n_commands and len(by_sequence(transport.received())) >= n_changes

    with follow(folder, transport) as last:
        last.wait_for(n_rows)
        wait_until(is_complete, last.output, step=0.2)
        last.end()


def read_events(folder):
    """Return the events so far."""
    lines = (folder / FILES["events"]).read_bytes().split(b"\n")[:-1]
    return [json.loads(line) for line in lines]


def of_commands(events):
    return [one for one in events if one["event"] == "alarm" and one["alarm"] == SILENT]


def by_sequence(alarms):
    """Return what was received under each number; more than one record if they differ."""
    found = {}
    for one in alarms:
        known = found.setdefault(one["sequence"], [])
        if one not in known:
            known.append(one)
    return found


def kill_and_compare(folder, killed, undisturbed, kills, rate, seed=0):
    """Return counts of what was sent, and of what is missing, repeated or different after the kills.

    Parameters
    ----------
    folder : path
    killed, undisturbed : Transport
        Of the two runs.
    kills : int
    rate : float
        Rows per second.
    seed : int
    """
    rows = prepare(folder)
    sending = Sending(killed, rows, rate)
    wait_for_labels(folder / "killed", killed, sending.n_labels)
    with sending:
        kill_again_and_again(lambda: follow(folder / "killed", killed), kills, seed, longest=1.0)
    n_rows = sending.n_rows - killed.unfinished
    finish(folder / "killed", killed, n_rows, sending.n_commands)
    n_labels = send_labels(undisturbed, 0, sending.n_rows + LEAD)
    wait_for_labels(folder / "undisturbed", undisturbed, n_labels)
    for number in range(sending.n_rows):
        undisturbed.send_row(number, make_record(rows, number))
    finish(folder / "undisturbed", undisturbed, n_rows, 0)
    return {"kills": kills, "rows": sending.n_rows} | compare(folder, sending, killed.received())


def compare(folder, sending, alarms):
    outs = [folder / "killed", folder / "undisturbed"]
    differ = [
        name
        for name in ("predictions", "quarantine")
        if len({(out / FILES[name]).read_bytes() for out in outs}) > 1
    ]
    if len({load(out / MODEL).to_bytes() for out in outs}) > 1:
        differ.append("model")
    events, expected = map(read_events, outs)
    if of_rows(events) != of_rows(expected):
        differ.append("events")
    predicted = [one["time"] for one in read_records(outs[0], "predictions")]
    changes = [one for one in events if one["event"] == "alarm"]
    arrived = by_sequence(alarms)
    done = [one["comment"] for one in of_commands(events)]
    sent = [command_of(number)["comment"] for number in range(sending.n_commands)]
    return {
        "predicted": len(predicted),
        "predicted_twice": len(predicted) - len(set(predicted)),
        # The last rows are no whole batch, and are not learned from.
        "labels": len(range(0, len(predicted) // BATCH * BATCH, LABELLED)),
        "labels_learned": sum(one.get("learned", 0) for one in events if one["event"] == "label"),
        "commands": len(sent),
        "commands_lost": len(set(sent) - set(done)),
        "commands_twice": len(done) - len(set(done)),
        "commands_in_order": done == sent,
        "changes_of_alarms": len(changes),
        "alarms_lost": sum(one["sequence"] not in arrived for one in changes),
        "alarms_different": sum(arrived.get(one["sequence"]) != [one] for one in changes),
        "alarms_sent_again": len(alarms) - len(arrived),
        "differ_from_an_undisturbed_run": differ,
    }


def of_rows(events):
    """Return events that depend on rows alone, without the number that also counts commands."""
    return [
        {name: value for name, value in one.items() if name != "sequence"}
        for one in events
        if one["event"] in KINDS or (one["event"] == "alarm" and one["alarm"] != SILENT)
    ]


@contextlib.contextmanager
def over_mqtt(folder):
    """A broker; a panel receives the alarms."""
    from tests.streams import mosquitto

    # It saves each second: else it writes all labels that wait after each message.
    configuration = mosquitto.CONFIGURATION.replace("on_changes true", "on_changes false")
    with (
        mosquitto.Broker(folder, configuration=configuration) as broker,
        mosquitto.Publisher(broker.port) as publisher,
        mosquitto.panel(broker) as alarms,
    ):
        yield Mqtt(broker, publisher, alarms)


class Mqtt(Transport):
    """Topics of a broker, all with the same publisher."""

    options = ("--time", "n")

    def __init__(self, broker, publisher, alarms):
        from tests.streams import mosquitto

        self.environment = mosquitto.login("INPUT", "LABELS", "ALARMS")
        self.publisher, self.received = publisher, lambda: list(alarms)
        urls = [broker.url(f"plant/{topic}") for topic in ("rows", "labels", "commands")]
        credentials = Credentials(mosquitto.USER, mosquitto.PASSWORD)
        for url in urls:  # a broker keeps nothing before that
            open_source(url, columns=COLUMNS, credentials=credentials, durable=True).close()
        self.url, self.labels, self.commands = urls
        self.alarms = ("--alarms", broker.url("plant/alarms"))

    def send_row(self, number, row):
        self.publisher.send("plant/rows", row, f"row {number}")

    def send_label(self, record):
        self.publisher.send("plant/labels", record)

    def send_command(self, record):
        self.publisher.send("plant/commands", record)


@contextlib.contextmanager
def over_kafka(folder):
    """A cluster of its own."""
    from tests.streams.kafka_cluster import Cluster

    del folder
    with Cluster() as cluster:
        yield Kafka(cluster)


class Kafka(Transport):
    """Topics of a cluster; of each, one partition is used, so that rows have an order."""

    options = ("--time", "n")

    def __init__(self, cluster):
        self.cluster = cluster
        topics = ("rows", "labels", "commands", "alarms")
        for topic in topics:
            cluster.create(topic)
        self.url, self.labels, self.commands, alarms = map(cluster.url, topics)
        self.alarms = ("--alarms", alarms)

    def _send(self, topic, record):
        self.cluster.send(topic, [(None, json.dumps(record))], partition=0)

    def send_row(self, number, row):
        del number
        self._send("rows", row)

    def send_label(self, record):
        self._send("labels", record)

    def send_command(self, record):
        self._send("commands", record)

    def received(self):
        return [json.loads(one.value()) for one in self.cluster.received("alarms")]


@contextlib.contextmanager
def over_opc_ua(folder):
    """A server whose history keeps all rows; labels and commands are growing files, alarms a webhook."""
    from tests.runtime.receiver import Receiver
    from tests.streams.opcua_plant import Plant

    plant = Plant(COLUMNS)
    try:
        with Receiver() as receiver:
            yield OpcUa(folder, plant, receiver)
    finally:
        plant.close()


class OpcUa(Transport):
    """A server with a row each second of its clock."""

    BEGIN = 1_800_000_000
    unfinished = 1  # until the clock has passed it
    options = ("--sample-interval", "1s")

    def __init__(self, folder, plant, receiver):
        from tests.runtime.receiver import SECRET

        folder.mkdir()
        self.plant, self.receiver = plant, receiver
        self.url = f"{plant.url}?node=ns=2;s=Plant&since={self.time_of(0)}"
        self.labels, self.commands = (str(folder / f"{name}.ndjson") for name in ("labels", "commands"))
        secret = folder / "secret"
        secret.write_text(SECRET)
        self.alarms = ("--alarm-webhook", receiver.url, "--alarm-secret-file", str(secret))

    def time_of(self, number):
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.BEGIN + number))

    def send_row(self, number, row):
        self.plant.write(*((name, row[name], self.BEGIN + number) for name in COLUMNS))

    def send_label(self, record):
        self._append(self.labels, record | {"time": self.time_of(int(record["time"]))})

    def send_command(self, record):
        self._append(self.commands, record)

    def _append(self, path, record):
        with Path(path).open("a") as file:
            file.write(json.dumps(record) + "\n")

    def received(self):
        return list(self.receiver.messages)


TRANSPORTS = {"mqtt": over_mqtt, "kafka": over_kafka, "opcua": over_opc_ua}


def kill_over(transport, folder, kills, rate=8.0):
    """Kill runs over a transport; see :func:`kill_and_compare`."""
    connect = TRANSPORTS[transport]
    with connect(folder / "a") as killed, connect(folder / "b") as undisturbed:
        return kill_and_compare(folder, killed, undisturbed, kills, rate)
