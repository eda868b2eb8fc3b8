"""How a webhook proves who sent it, in both directions: what the server sends to others, and what others send to it.

    X-Interlock-Timestamp: 1700000000
    X-Interlock-Delivery: 3f0c...
    X-Interlock-Signature: v1=<hex of HMAC-SHA256(secret, "1700000000.3f0c....<body>")>

The delivery is signed, too. It is what a receiver knows a repetition by, so whoever recorded one request must not be
able to send it again under another delivery.
"""

import hmac
import re
from hashlib import sha256

TIMESTAMP = "X-Interlock-Timestamp"
DELIVERY = "X-Interlock-Delivery"
SIGNATURE = "X-Interlock-Signature"

is_delivery = re.compile(r"[A-Za-z0-9_:-]{1,128}").fullmatch


def signature(secret: str, timestamp: int, delivery: str, body: bytes) -> str:
    signed = f"{timestamp}.{delivery}.".encode() + body
    return "v1=" + hmac.new(secret.encode(), signed, sha256).hexdigest()


def signed_headers(secret: str, timestamp: int, delivery: str, body: bytes) -> dict[str, str]:
    return {
        TIMESTAMP: str(timestamp),
        DELIVERY: delivery,
        SIGNATURE: signature(secret, timestamp, delivery, body),
    }
