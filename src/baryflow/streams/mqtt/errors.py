"""Why a broker does not let us in, in one sentence that says what to do."""

from __future__ import annotations

import socket
import ssl

from baryflow.exceptions import UnreachableError
from baryflow.streams.urls import PREFIX, Address, Credentials

#: Reasons of a broker for which trying again may help, by their number in MQTT 5.
_PASSING = {0x80, 0x81, 0x83, 0x88, 0x89, 0x8B, 0x8D, 0x93, 0x97, 0x9C, 0x9F}
#: Number of OpenSSL for a certificate that is for another host.
_OTHER_HOST = (62, 64)
#: The other end is gone, which it may be for a while only.
_HUNG_UP = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionResetError)
_CLIENT_NAME = 0x85
_TAKEN_OVER = 0x8E


def explain_failure(error: Exception, address: Address) -> UnreachableError | None:
    """Return why a connection cannot be made, or None if trying again may help."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _OTHER_HOST:
            words = (
                f"its certificate is for another host than {address.host}: use the name that is in it"
            )
        else:
            words = (
                f"its certificate is not trusted ({error.verify_message}): name the authority that has "
                f"signed it, as ca_file or {PREFIX}CA_FILE"
            )
        return UnreachableError(f"{address}: {words}")
    if isinstance(error, ssl.SSLError) and not isinstance(error, _HUNG_UP):
        reason = (error.reason or "").upper()
        if "ALERT" in reason or "CERTIFICATE" in reason:
            words = (
                f"it refuses us ({reason.lower().replace('_', ' ')}): it may want a certificate of "
                "ours, as cert_file and key_file"
            )
        else:
            words = (
                "what answers there does not speak TLS: use the port that does, or mqtt:// without TLS"
            )
        return UnreachableError(f"{address}: {words}")
    return None  # an unknown host too: a name server may be away


def explain_absence(error: Exception | str, address: Address, seconds: float) -> UnreachableError:
    """Return that nothing answered for so long."""
    if isinstance(error, socket.gaierror):
        words = f"there is no host {address.host!r}: look at its name"
    elif isinstance(error, ConnectionRefusedError):
        words = "nothing listens there: look at host and port, and whether the broker runs"
    elif isinstance(error, str):
        words = error
    elif address.scheme == "mqtts" and isinstance(error, _HUNG_UP):
        words = "it hangs up when it hears TLS: use the port that speaks it, or mqtt:// without TLS"
    else:
        words = f"no answer ({error or type(error).__name__}): look at host, port and firewall"
    return UnreachableError(f"{address}: {words} (tried for {seconds:.0f} s)")


def explain_refusal(
    number: int, name: str, address: Address, credentials: Credentials, client: str
) -> UnreachableError | None:
    """Return why a broker refuses a connection, or None if trying again may help."""
    if number in _PASSING:
        return None
    if number in (0x86, 0x87, 0x8C, 4, 5):
        if credentials.username is None:
            words = (
                f"it wants to know who we are: set {PREFIX}USERNAME and {PREFIX}PASSWORD, or name a file"
            )
        else:
            words = (
                f"it does not let in {credentials.username!r} with this password: look at both, "
                "and at what it allows this user"
            )
    elif number in (0x84, 1):
        words = "it does not speak MQTT 5, which is needed: mosquitto does from 2.0 on"
    elif number in (_CLIENT_NAME, 2):
        words = f"it does not accept the client name {client!r}: choose another with ?client=NAME"
    else:
        words = f"it refuses us: {name}"
    return UnreachableError(f"{address}: {words}")


def explain_farewell(number: int, name: str, address: Address, client: str) -> UnreachableError | None:
    """Return why a broker has ended a connection for good, or None if trying again may help."""
    if number == _TAKEN_OVER:
        return explain_fight(address, client)
    if number in (0x87, 0x8A, 0x98):
        return UnreachableError(f"{address}: it has shut us out: {name}")
    return None


def explain_fight(address: Address, client: str) -> UnreachableError:
    """Return that somebody else uses our name; not all brokers say so."""
    return UnreachableError(
        f"{address}: another process takes over the session {client!r}: two runs need two names, choose "
        "one with ?client=NAME"
    )
