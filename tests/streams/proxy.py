"""A proxy that forwards TCP to a local port, and can be cut."""

import contextlib
import selectors
import socket
import threading


class Proxy:
    """Forwards connections; a context manager.

    ``cut()`` drops everything silently, like a switch without power: data is not answered, and new
    connections are accepted but get no answer. ``heal()`` closes these connections, and forwards new
    ones. ``reset()`` closes all connections at once.
    """

    def __init__(self, target, host="127.0.0.1"):
        self.host, self.target = host, target
        self._listener = socket.create_server((host, 0))
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        self._peers = {}  # socket → the other end of the wire; None while it has none
        self._waiting = {}  # socket → bytes that its end did not take yet
        self._whole, self._ended = True, False
        self._told, self._tell = socket.socketpair()
        self._told.setblocking(False)
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended = True
        self._tell.send(b".")
        self._thread.join()
        with self._lock:
            self._close_all()
        for one in (self._listener, self._told, self._tell):
            one.close()

    def cut(self):
        with self._lock:
            self._whole = False
        self._tell.send(b".")

    def heal(self):
        with self._lock:
            self._close_all()
            self._whole = True
        self._tell.send(b".")

    def reset(self):
        with self._lock:
            self._close_all()
        self._tell.send(b".")

    def _run(self):
        while not self._ended:
            with selectors.DefaultSelector() as selector, self._lock:
                selector.register(self._listener, selectors.EVENT_READ)
                selector.register(self._told, selectors.EVENT_READ)
                for one in self._peers if self._whole else ():
                    # Nothing is read from one end that the other does not take.
                    events = 0 if self._waiting.get(self._peers[one]) else selectors.EVENT_READ
                    events |= selectors.EVENT_WRITE if self._waiting.get(one) else 0
                    if events:
                        selector.register(one, events)
                self._lock.release()
                try:
                    ready = selector.select()
                finally:
                    self._lock.acquire()
                for key, events in ready:
                    self._serve(key.fileobj, events)

    def _serve(self, one, events):
        if one is self._told:
            self._told.recv(4096)
        elif one is self._listener:
            with contextlib.suppress(OSError):
                self._open(self._listener.accept()[0])
        elif one in self._peers and self._whole:
            try:
                if events & selectors.EVENT_WRITE:
                    self._push(one)
                if events & selectors.EVENT_READ:
                    self._pass(one)
            except BlockingIOError:
                pass
            except OSError:
                self._close(one)

    def _open(self, client):
        client.setblocking(False)
        self._peers[client] = None
        if not self._whole:
            return
        try:
            server = socket.create_connection((self.host, self.target), timeout=5.0)
        except OSError:
            self._close(client)
            return
        server.setblocking(False)
        self._peers[client], self._peers[server] = server, client

    def _pass(self, one):
        data = one.recv(65536)
        other = self._peers[one]
        if not data or other is None:
            self._close(one)
            return
        self._waiting[other] = self._waiting.get(other, b"") + data
        self._push(other)

    def _push(self, one):
        with contextlib.suppress(BlockingIOError):
            sent = one.send(self._waiting[one])
            self._waiting[one] = self._waiting[one][sent:]

    def _close(self, one):
        other = self._peers.pop(one, None)
        self._peers.pop(other, None)
        for end in (one, other):
            if end is not None:
                self._waiting.pop(end, None)
                end.close()

    def _close_all(self):
        for one in list(self._peers):
            self._close(one)
