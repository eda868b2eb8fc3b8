"""Certificates of the proxy for hosts whose requests it has to read: a certificate authority of this process.

Its key exists in memory only, and its certificate is trusted by nothing but the commands that get it.
"""

import os
import ssl
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.util import find_spec
from tempfile import TemporaryDirectory
from threading import Lock
from typing import TYPE_CHECKING

from ...domain.hosts import parse_address

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

MISSING = (
    "Egress rules with `methods` or `credential` need the package cryptography. Install it, or interlock[server], "
    "which brings it."
)
_VALID_DAYS = 365
#: Where systems have the certificates that they trust.
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def can_make_certificates() -> bool:
    """Return True if the library for certificates is installed."""
    return find_spec("cryptography") is not None


class CertificateAuthority:
    """Makes certificates for hosts, each once."""

    def __init__(self) -> None:
        from cryptography import x509  # noqa: PLC0415 - an extra
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"Interlock egress {os.getpid()}")])
        constraints = ((x509.BasicConstraints(ca=True, path_length=0), True), (_ca_usage(), True))
        self._certificate = self._sign(self._name, self._key.public_key(), constraints)
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._lock = Lock()

    @property
    def certificate(self) -> bytes:
        """Its certificate, as PEM."""
        return _to_pem(self._certificate)

    def server_context(self, host: str) -> ssl.SSLContext:
        """Return the TLS settings of a server that is this host. It takes milliseconds the first time."""
        with self._lock:
            if host not in self._contexts:
                self._contexts[host] = self._make_context(host)
            return self._contexts[host]

    def _make_context(self, host: str) -> ssl.SSLContext:
        from cryptography import x509  # noqa: PLC0415
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
        from cryptography.x509.oid import ExtendedKeyUsageOID  # noqa: PLC0415

        key = ec.generate_private_key(ec.SECP256R1())
        address = parse_address(host)
        name = x509.DNSName(host) if address is None else x509.IPAddress(address)
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        extensions = (
            (x509.SubjectAlternativeName([name]), True),
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (usage, False),
        )
        certificate = self._sign(x509.Name([]), key.public_key(), extensions)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        # `ssl` reads certificates from files only.
        with TemporaryDirectory(prefix="interlock-") as folder:
            path = os.path.join(folder, "server.pem")
            with open(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "wb") as file:
                file.write(private + _to_pem(certificate))
            context.load_cert_chain(path)
        return context

    def _sign(
        self,
        subject: "x509.Name",
        public_key: "ec.EllipticCurvePublicKey",
        extensions: "tuple[tuple[x509.ExtensionType, bool], ...]",
    ) -> "x509.Certificate":
        from cryptography import x509  # noqa: PLC0415
        from cryptography.hazmat.primitives import hashes  # noqa: PLC0415

        now = datetime.now(UTC)
        identifiers = (
            (x509.SubjectKeyIdentifier.from_public_key(public_key), False),
            (x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False),
        )
        builder = x509.CertificateBuilder(self._name, subject, public_key, x509.random_serial_number())
        builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=_VALID_DAYS))
        for extension, critical in (*extensions, *identifiers):
            builder = builder.add_extension(extension, critical)
        return builder.sign(self._key, hashes.SHA256())


def _ca_usage() -> "x509.KeyUsage":
    from cryptography import x509  # noqa: PLC0415

    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _to_pem(certificate: "x509.Certificate") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415

    return certificate.public_bytes(Encoding.PEM)


@cache
def get_authority() -> CertificateAuthority:
    """Return the certificate authority of this process."""
    return CertificateAuthority()


def read_trusted_bundle() -> bytes:
    """Return the certificates that this system trusts, as PEM; empty where they are not found."""
    configured = ssl.get_default_verify_paths()
    for path in (configured.cafile, *_BUNDLES):
        if path and os.path.isfile(path):
            with open(path, "rb") as file:
                return file.read()
    return b""
