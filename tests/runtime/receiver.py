"""A receiver of webhooks that may be away, refuse, or check signatures."""

import base64
import hashlib
import hmac
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRET = "whsec_" + base64.b64encode(b"sixteen bytes or more").decode()


class Receiver:
    """Listens on a port of its own; `answers` are the next statuses, then 204."""

    def __init__(self, answers=(), port=0):
        self.answers, self.messages, self.ids = list(answers), [], []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                status = receiver.answers.pop(0) if receiver.answers else 204
                if not is_signed(self.headers, body):
                    status = 401
                if status == 204:
                    receiver.messages.append(json.loads(body))
                    receiver.ids.append(self.headers["webhook-id"])
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "http://127.0.0.1:1/")
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}/hook?plant=1"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def is_signed(headers, body):
    """Check a signature by the definition of Standard Webhooks."""
    content = b".".join([headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body])
    digest = hmac.new(b"sixteen bytes or more", content, hashlib.sha256).digest()
    return headers["webhook-signature"] == "v1," + base64.b64encode(digest).decode()
