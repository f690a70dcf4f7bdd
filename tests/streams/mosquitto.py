"""A real mosquitto on a free port, with the configuration of the docs."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

from tests.streams.run_process import make_record
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
CONFIGURATION = (ROOT / "docs" / "howto" / "mosquitto.conf").read_text(encoding="utf-8")
USER, PASSWORD = "plant", "correct horse"


def login(*roles):
    """Return the variables with which a process logs in at a broker for these roles."""
    known = {"USERNAME": USER, "PASSWORD": PASSWORD}
    return {f"BARYFLOW_{role}_{name}": known[name] for role in roles for name in known}


def find_mosquitto():
    """Return the broker's program; skip the test without one, except in CI."""
    found = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
    if found is None and os.environ.get("CI") == "true":
        raise FileNotFoundError("mosquitto; scripts/install-services installs it")
    if found is None:
        import pytest  # experiments use this file too

        pytest.skip("there is no mosquitto here")
    return found


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


class Broker:
    """Runs in a folder; use it as a context.

    Parameters
    ----------
    folder : path
    tls : tuple of paths, optional
        Of the authority, the server's certificate and its key: a second listener, on `tls_port`.
    configuration : str
        As a file says it; without a listener.
    """

    def __init__(self, folder, tls=None, configuration=CONFIGURATION):
        self.folder, self.port, self.tls_port = Path(folder), free_port(), None
        self.folder.mkdir(parents=True, exist_ok=True)
        text = configuration.replace("/etc/mosquitto/passwd", str(self.folder / "passwd"))
        text = text.replace("/var/lib/mosquitto/", f"{self.folder}/")
        text = text.replace("listener 1883\n", f"listener {self.port} 127.0.0.1\n")
        if tls is not None:
            self.tls_port = free_port()
            names = ("cafile", "certfile", "keyfile")
            lines = [f"{name} {path}" for name, path in zip(names, tls, strict=True)]
            text += "\n".join([f"listener {self.tls_port} 127.0.0.1", *lines, ""])
        if os.geteuid() == 0:  # it would become another user, who may not write here
            text = f"user root\n{text}"
        (self.folder / "mosquitto.conf").write_text(text, encoding="utf-8")
        where = self.folder / "passwd"
        program = shutil.which("mosquitto_passwd")
        subprocess.run([program, "-b", "-c", str(where), USER, PASSWORD], check=True)
        self.process = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop(signal.SIGKILL)

    def start(self):
        with (self.folder / "mosquitto.log").open("ab") as log:
            self.process = subprocess.Popen(
                [find_mosquitto(), "-c", str(self.folder / "mosquitto.conf")], stdout=log, stderr=log
            )
        wait_until(self.answers, self.output, step=0.01)

    def output(self):
        return (self.folder / "mosquitto.log").read_text(errors="replace")

    def answers(self):
        assert self.process.poll() is None, self.output()
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1.0).close()
        except OSError:
            return False
        return True

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        self.process.wait(timeout=300)

    def restart(self, how=signal.SIGTERM, away=0.0):
        self.stop(how)
        time.sleep(away)
        self.start()

    def wait_until_saved(self, quiet=0.3):
        """Wait until it has written nothing for a while, so all confirmed messages are on disk."""
        path = self.folder / "mosquitto.db"
        wait_until(lambda: time.time() - path.stat().st_mtime >= quiet, "the broker keeps writing")

    def url(self, path, port=None, scheme="mqtt"):
        return f"{scheme}://127.0.0.1:{port or self.port}/{path}"


class Publisher:
    """Publishes with QoS 1, and continues when the broker is back; a context manager.

    After a lost connection it publishes again what was not confirmed: `connections` counts them.
    """

    def __init__(self, port, client="publisher"):
        import paho.mqtt.client as mqtt

        self.client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client, protocol=mqtt.MQTTv5)
        self.client.username_pw_set(USER, PASSWORD)
        self.sent = self.confirmed = self.connections = 0
        self.client.on_publish = self._confirm
        self.client.on_connect = self._connected
        self.client.reconnect_delay_set(1, 1)
        # A busy broker must not seem to be away.
        self.client.connect("127.0.0.1", port, clean_start=False, keepalive=600)

    def __enter__(self):
        self.client.loop_start()
        return self

    def __exit__(self, *_):
        self.client.disconnect()
        self.client.loop_stop()

    def send(self, topic, what, name=None, qos=1, correlation=None):
        """Send a message; anything but bytes is sent as JSON."""
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        properties = Properties(PacketTypes.PUBLISH)
        if name is not None:
            properties.UserProperty = ("id", name)
        if correlation is not None:
            properties.CorrelationData = correlation
        payload = what if isinstance(what, bytes) else json.dumps(what).encode()
        self.client.publish(topic, payload, qos=qos, properties=properties)
        self.sent += 1

    def send_all(self, topic, many, **options):
        """Send messages, and return once the broker has confirmed them."""
        for one in many:
            self.send(topic, one, **options)
        self.wait()

    def wait(self):
        """Return when the broker has confirmed everything."""
        wait_until(
            lambda: self.confirmed >= self.sent, lambda: f"{self.confirmed} of {self.sent} are confirmed"
        )

    def _confirm(self, *_):
        self.confirmed += 1

    def _connected(self, *_):
        self.connections += 1


class Sending:
    """Sends rows in a thread at a rate per second; a context manager that ends when all are sent."""

    def __init__(self, port, topic, rows, numbers, rate, named=True):
        self.port, self.topic, self.rows, self.numbers = port, topic, rows, numbers
        self.rate, self.named, self.sent, self.stopped = rate, named, 0, False
        self.connections = 0
        self.thread = threading.Thread(target=self._run)

    def _run(self):
        with Publisher(self.port, "sender") as publisher:  # beside a "publisher" of the test
            for number in self.numbers:
                name = f"{self.topic} {number}" if self.named else None
                publisher.send(self.topic, make_record(self.rows, number), name)
                self.sent += 1
                time.sleep(1 / self.rate)
                if self.stopped:
                    break
            publisher.wait()
            self.connections = publisher.connections

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, error, *_):
        self.stopped |= error is not None
        self.thread.join()


@contextlib.contextmanager
def panel(broker):
    """A client of another project; yields what it hears of alarms, also of those while it was away."""
    import paho.mqtt.client as mqtt
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties

    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "panel", protocol=mqtt.MQTTv5)
    client.username_pw_set(USER, PASSWORD)
    messages, ready = [], []
    client.on_message = lambda *more: messages.append(json.loads(more[2].payload))
    client.on_subscribe = lambda *_: ready.append(True)
    kept = Properties(PacketTypes.CONNECT)
    kept.SessionExpiryInterval = 3600
    client.connect("127.0.0.1", broker.port, clean_start=False, properties=kept)
    client.loop_start()
    client.subscribe("plant/alarms", qos=1)
    wait_until(lambda: ready)
    yield messages
    client.disconnect()
    client.loop_stop()
