"""Signatures of webhooks, in both directions: sent by the server, and received by it.

    X-Interlock-Timestamp: 1700000000
    X-Interlock-Delivery: 3f0c...
    X-Interlock-Signature: v1=<hex of HMAC-SHA256(secret, "1700000000.3f0c....<body>")>

The delivery id is signed, too. A receiver recognises a repetition by it, so a recorded request must not be
replayable under another id.
"""

import hmac
import re
from hashlib import sha256

TIMESTAMP_HEADER = "X-Interlock-Timestamp"
DELIVERY_HEADER = "X-Interlock-Delivery"
SIGNATURE_HEADER = "X-Interlock-Signature"

is_delivery_id = re.compile(r"[A-Za-z0-9_:-]{1,128}").fullmatch


def compute_signature(secret: str, timestamp: int, delivery: str, body: bytes) -> str:
    """Compute the signature of a delivery."""
    signed = f"{timestamp}.{delivery}.".encode() + body
    return "v1=" + hmac.new(secret.encode(), signed, sha256).hexdigest()


def build_signed_headers(secret: str, timestamp: int, delivery: str, body: bytes) -> dict[str, str]:
    """Build the headers of a signed delivery."""
    return {
        TIMESTAMP_HEADER: str(timestamp),
        DELIVERY_HEADER: delivery,
        SIGNATURE_HEADER: compute_signature(secret, timestamp, delivery, body),
    }
