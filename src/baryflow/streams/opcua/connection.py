"""Getting into an OPC UA server: who we are, whom we trust, and what to say if we are not let in."""

from __future__ import annotations

import asyncio
import ipaddress
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from baryflow.exceptions import InvalidInputError, UnreachableError
from baryflow.streams.opcua.packages import asyncua, ua
from baryflow.streams.urls import Address, Credentials

PORT = 4840
#: What can be asked for with ``security=``; older ones are broken.
POLICIES = ("Basic256Sha256", "Aes128Sha256RsaOaep", "Aes256Sha256RsaPss")
MODES = ("SignAndEncrypt", "Sign")
#: Seconds after which a request without an answer is given up.
TIMEOUT = 5.0
_REFUSED = (
    "BadUserAccessDenied",
    "BadIdentityTokenRejected",
    "BadIdentityTokenInvalid",
    "BadUserSignatureInvalid",
)
_DISTRUSTED = (
    "BadSecurityChecksFailed",
    "BadCertificateUntrusted",
    "BadCertificateInvalid",
    "BadCertificateUriInvalid",
    "BadCertificateUseNotAllowed",
    "BadCertificateTimeInvalid",
)


def endpoint(address: Address) -> str:
    """Return the URL as OPC UA has it, without our options."""
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"opc.tcp://{host}:{address.port or PORT}/{address.path}"


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine."""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def check_security(address: Address, credentials: Credentials) -> None:
    """Refuse what cannot be safe, before anything is sent."""
    policy, mode = address.option("security", ""), address.option("mode", MODES[0])
    if policy and policy not in POLICIES:
        raise InvalidInputError(f"security must be one of {', '.join(POLICIES)}, got {policy!r}")
    if mode not in MODES:
        raise InvalidInputError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")
    if policy and not (credentials.cert_file and credentials.key_file):
        raise InvalidInputError(
            "security needs a certificate of our own and its key: set cert_file and key_file"
        )
    if policy and not credentials.ca_file:
        raise InvalidInputError(
            "security needs to know which server to trust: set ca_file to the server's certificate, or "
            "to that of the authority that signed it"
        )
    if credentials.password and not policy and not is_loopback(address.host):
        raise InvalidInputError(
            f"a password would go to {address.host} unprotected: add ?security={POLICIES[0]}"
        )


async def connect(address: Address, credentials: Credentials) -> Any:
    """Return a connected client.

    Parameters
    ----------
    address : Address
    credentials : Credentials

    Returns
    -------
    asyncua.Client

    Raises
    ------
    UnreachableError
        If we are not let in; the message says why.
    OSError, TimeoutError
        If nobody answers.
    """
    client = asyncua.Client(endpoint(address), timeout=TIMEOUT, watchdog_intervall=TIMEOUT / 2)
    client.name = client.description = "baryflow"
    client.session_timeout = 60_000
    if credentials.username is not None:
        client.set_user(credentials.username)
        client.set_password(credentials.password or "")
    try:
        if address.option("security", ""):
            await _secure(client, address, credentials)
        await client.connect()
    except (ua.UaError, ConnectionError) as error:
        refusal = _explain(error, address, credentials)
        if refusal is None:
            raise
        raise UnreachableError(refusal) from None  # what asyncua says may hold what we sent
    return client


async def disconnect(client: Any) -> None:
    """Let go of a connection, be it alive or dead."""
    with suppress(Exception):
        await asyncio.wait_for(client.disconnect(), TIMEOUT)


def _explain(error: Exception, address: Address, credentials: Credentials) -> str | None:
    """Say why we are not let in; None if it is merely away."""
    kind = type(error).__name__
    if kind in _REFUSED:
        who = f"the user {credentials.username!r} with this password" if credentials.username else (
            "anybody without a user"
        )  # fmt: skip
        return f"{address} does not let in {who}"
    if kind in _DISTRUSTED:
        return f"{address} does not trust our certificate ({kind}): its operator must accept it"
    if isinstance(error, ua.UaStatusCodeError) and "Security" in kind:
        return f"{address} refuses this kind of security ({kind}): see ?security= and ?mode="
    if isinstance(error, ua.UaError) and "No matching endpoints" in str(error):
        asked = address.option("security", "") or "a connection without security"
        return f"{address} does not offer {asked}: see ?security= and ?mode="
    if isinstance(error, ua.UaError) and "certificate mismatch" in str(error):
        return f"{address} shows two different certificates: somebody stands between it and us"
    return None


async def _secure(client: Any, address: Address, credentials: Credentials) -> None:
    """Ask the server for its certificate, check it, and use no other."""
    from asyncua.crypto import security_policies
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    policy = getattr(security_policies, f"SecurityPolicy{address.options['security']}")
    mode = getattr(ua.MessageSecurityMode, address.option("mode", MODES[0]))
    endpoints = await client.connect_and_get_server_endpoints()
    offered = asyncua.Client.find_endpoint(endpoints, mode, policy.URI)
    if not offered.ServerCertificate:
        raise UnreachableError(f"{address} shows no certificate")
    certificate = x509.load_der_x509_certificate(offered.ServerCertificate)
    trusted = _read_certificates(credentials.ca_file or "")
    reason = _distrust(certificate, trusted, address.host)
    if reason:
        raise UnreachableError(
            f"the certificate of {address} is not to be trusted: {reason}; ca_file names whom to trust"
        )
    ours = _read_certificates(credentials.cert_file or "")[0]
    with suppress(x509.ExtensionNotFound):
        names = ours.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        for uri in names.get_values_for_type(x509.UniformResourceIdentifier)[:1]:
            client.application_uri = uri  # servers compare it with the one in the certificate
    await client.set_security(
        policy,
        certificate=credentials.cert_file,
        private_key=credentials.key_file,
        server_certificate=certificate.public_bytes(Encoding.DER),
        mode=mode,
    )


def _read_certificates(path: str) -> list[Any]:
    from cryptography import x509

    data = Path(path).read_bytes()
    try:
        if b"-----BEGIN" in data:
            return x509.load_pem_x509_certificates(data)
        return [x509.load_der_x509_certificate(data)]
    except ValueError:
        raise InvalidInputError(f"{path} must hold a certificate, as PEM or DER, but does not") from None


def _distrust(certificate: Any, trusted: list[Any], host: str) -> str:
    """Return why a certificate is not to be trusted; nothing if it is."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    now = datetime.now(UTC)
    if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
        return (
            f"it is valid from {certificate.not_valid_before_utc} to {certificate.not_valid_after_utc}"
        )
    if certificate in trusted:
        return ""
    for authority in trusted:
        try:
            certificate.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature):
            continue
        if not authority.not_valid_before_utc <= now <= authority.not_valid_after_utc:
            return "the authority that signed it has expired"
        with suppress(x509.ExtensionNotFound):
            limits = authority.extensions.get_extension_for_class(x509.BasicConstraints).value
            if limits.ca:
                return _wrong_name(certificate, host)
    return "neither it nor who signed it is in ca_file"


def _wrong_name(certificate: Any, host: str) -> str:
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return "it is for no host"
    hosts = [str(name) for kind in (x509.DNSName, x509.IPAddress)
             for name in names.get_values_for_type(kind)]  # fmt: skip
    if host in hosts or (host == "localhost" and {"127.0.0.1", "::1"} & set(hosts)):
        return ""
    return f"it is for {', '.join(hosts) or 'no host'}, not for {host}"
