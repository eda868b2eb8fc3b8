"""Takes audit events that a server forwards: checks who sent them, takes each delivery once, prints one line for each.

SHOP_AUDIT_SECRET=... python receiver.py [PORT]
"""

import hmac
import json
import os
import sys
import time
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, HTTPServer

SECRET = os.environ["SHOP_AUDIT_SECRET"].encode()
TOLERANCE_SECONDS = 300
MAX_BYTES = 4 << 20

taken: set[str] = set()


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", "0"))
        body = self.rfile.read(min(length, MAX_BYTES))
        status = self._take(body) if length <= MAX_BYTES else 413
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _take(self, body: bytes) -> int:
        """A batch that could not be confirmed is sent again, under the same delivery."""
        sent_at, delivery = (self.headers.get(f"X-Interlock-{name}", "") for name in ("Timestamp", "Delivery"))
        signed = f"{sent_at}.{delivery}.".encode() + body
        expected = "v1=" + hmac.new(SECRET, signed, sha256).hexdigest()
        if not hmac.compare_digest(self.headers.get("X-Interlock-Signature", ""), expected):
            return 401
        if abs(time.time() - int(sent_at)) > TOLERANCE_SECONDS:
            return 401
        if delivery not in taken:
            for line in body.splitlines():
                event = json.loads(line)["event"]
                print(event["run_id"], event["seq"], event["fact"]["type"], flush=True)
            taken.add(delivery)  # in a real one: on disk, together with the events
        return 204

    def log_message(self, format: str, *args: object) -> None:
        pass


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8400
    with HTTPServer(("127.0.0.1", port), Receiver) as server:
        print(f"listening on {server.server_port}", flush=True)
        server.serve_forever()
