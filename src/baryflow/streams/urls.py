"""URLs of brokers and servers, and the credentials for them."""

from __future__ import annotations

import ipaddress
import json
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from baryflow.exceptions import InvalidInputError
from baryflow.streams.backoff import RetryPolicy

#: Prefix of the environment variables that hold credentials.
PREFIX = "BARYFLOW_"
#: What a URL is for; each has variables of its own.
ROLES = ("input", "output", "labels", "alarms")


@dataclass(frozen=True)
class Credentials:
    """User, password and certificates; the password is never shown.

    Attributes
    ----------
    username, password : str or None
    ca_file : str or None
        Trusted certificate authorities; None for those of the system.
    cert_file, key_file : str or None
        The client certificate and its key.
    """

    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None


@dataclass(frozen=True)
class Endpoint:
    """A broker or server: its parsed URL, the credentials for it, and how to wait for it.

    Attributes
    ----------
    scheme, host : str
    port : int or None
        None for the default port of the scheme.
    path : str
        Without the leading slash; a topic, for example.
    options : dict of str → str
        The query parameters.
    more : tuple of str
        Further ``host:port`` of the same cluster, separated by commas in the URL.
    credentials : Credentials
    policy : RetryPolicy
    """

    scheme: str
    host: str
    port: int | None
    path: str
    options: dict[str, str] = field(default_factory=dict)
    more: tuple[str, ...] = ()
    credentials: Credentials = field(default_factory=Credentials)
    policy: RetryPolicy = field(default_factory=RetryPolicy)

    @classmethod
    def parse(
        cls, url: str, credentials: Credentials | None = None, policy: RetryPolicy | None = None
    ) -> Endpoint:
        """Parse ``scheme://host:port,host:port/path?option=value``; a ``#`` is part of the path.

        Parameters
        ----------
        url : str
        credentials : Credentials, optional
        policy : RetryPolicy, optional

        Returns
        -------
        Endpoint

        Raises
        ------
        InvalidInputError
            If there is no host, a port is not a number, or the URL holds a user or password, which other
            users could see in the list of processes.
        """
        text = url.replace("#", "%23")
        hosts = re.split("[/?]", text.partition("://")[2], maxsplit=1)[0]
        try:
            first, *more = hosts.split(",")
            for host in more:
                if not urlsplit(f"//{host}").hostname:
                    raise ValueError("a host between commas is empty")
                _ = urlsplit(f"//{host}").port  # raises if it is not a number
            # Without the other hosts: newer releases of Python refuse an IPv6 address among them.
            parts = urlsplit(text.replace(hosts, first, 1))
            port = parts.port
        except ValueError:  # the message of the original error may hold part of a password
            raise InvalidInputError(
                "expected scheme://host:port/path, got a URL with an empty host or a port that is no "
                "number"
            ) from None
        if any("@" in netloc for netloc in (parts.netloc, *more)):
            raise InvalidInputError(
                "a URL must not hold a user or password, because others can see it: use a credentials "
                f"file, or variables such as {PREFIX}INPUT_USERNAME and {PREFIX}INPUT_PASSWORD"
            )
        if not parts.hostname:
            raise InvalidInputError(f"expected scheme://host:port/path, got {url!r}, which has no host")
        return cls(
            parts.scheme,
            parts.hostname,
            port,
            unquote(parts.path.removeprefix("/")),
            dict(parse_qsl(parts.query, keep_blank_values=True)),
            tuple(more),
            credentials or Credentials(),
            policy or RetryPolicy(),
        )

    def __str__(self) -> str:
        port = "" if self.port is None else f":{self.port}"
        return f"{self.scheme}://{','.join((self.bracketed_host + port, *self.more))}/{self.path}"

    @property
    def bracketed_host(self) -> str:
        """The host, with brackets around an IPv6 address."""
        return f"[{self.host}]" if ":" in self.host else self.host

    def option(self, name: str, default: str) -> str:
        """Return an option, or its default.

        Parameters
        ----------
        name, default : str

        Returns
        -------
        str
        """
        return self.options.get(name, default)

    def int_option(self, name: str, default: int, low: int, high: int) -> int:
        """Return an option that is an integer from `low` to `high`.

        Parameters
        ----------
        name : str
        default, low, high : int

        Returns
        -------
        int

        Raises
        ------
        InvalidInputError
            If it is not an integer in this range.
        """
        text = self.options.get(name, str(default))
        if not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
            raise InvalidInputError(
                f"{self}: {name} must be an integer from {low} to {high}, got {text!r}"
            )
        return int(text)

    def check_options(self, *known: str, several: bool = False) -> None:
        """Refuse unknown options.

        Parameters
        ----------
        *known : str
        several : bool, default=False
            Whether the transport accepts more than one host.

        Raises
        ------
        InvalidInputError
            If the URL has other options, or several hosts where one is expected.
        """
        if self.more and not several:
            raise InvalidInputError(f"expected one host in {self.scheme}://, got {len(self.more) + 1}")
        unknown = [name for name in self.options if name not in known]
        if unknown:
            raise InvalidInputError(
                f"{self} has no option {', '.join(map(repr, unknown))}; it has {', '.join(known)}"
            )


def is_loopback(host: str) -> bool:
    """Return whether a host is this computer."""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def is_url(location: object) -> bool:
    """Return whether this is a URL rather than a file name."""
    return isinstance(location, str) and "://" in location


_NAMES = tuple(one.name for one in fields(Credentials))


def read_credentials(
    role: str,
    urls: Iterable[str | None],
    path: str | os.PathLike[str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> dict[str, Credentials]:
    """Return the credentials of each URL that has some; none are ever used for another host.

    Parameters
    ----------
    role : {"input", "output", "labels", "alarms"}
        What all of the URLs are for.
    urls : iterable of str or None
        Files and None are skipped.
    path : path, optional
        A JSON object: address → an object with some of ``username``, ``password``, ``ca_file``,
        ``cert_file``, ``key_file``. An address, such as ``mqtts://broker.example`` or
        ``mqtts://broker.example/plant``, stands for the URLs that begin with it; the longest one counts.
    environment : mapping, optional
        Holds ``BARYFLOW_INPUT_USERNAME`` and so on, with the role in the name, for URLs that the file
        does not have; by default, the environment of the process.

    Returns
    -------
    dict of str → Credentials

    Raises
    ------
    InvalidInputError
        If the file has other content or names a file that does not exist, or if variables would be used
        for several hosts.
    OSError
        If the file cannot be read.

    Examples
    --------
    >>> from baryflow.streams import read_credentials
    >>> variables = {"BARYFLOW_INPUT_USERNAME": "plant", "BARYFLOW_INPUT_PASSWORD": "..."}
    >>> found = read_credentials("input", ["mqtts://broker.example/rows"], environment=variables)
    >>> found["mqtts://broker.example/rows"].username
    'plant'
    """
    if role not in ROLES:
        raise InvalidInputError(f"role must be one of {', '.join(ROLES)}, got {role!r}")
    environment = os.environ if environment is None else environment
    addresses = {url: Endpoint.parse(url) for url in urls if url is not None and is_url(url)}
    entries = [] if path is None else _read_file(Path(path))
    prefix = f"{PREFIX}{role.upper()}_"
    variables = {
        name: environment[prefix + name.upper()]
        for name in _NAMES
        if prefix + name.upper() in environment
    }
    found, hosts = {}, set()
    for url, address in addresses.items():
        matching = [entry for entry in entries if _is_part(address, entry)]
        if matching:
            found[url] = max(matching, key=lambda entry: len(entry.path)).credentials
        elif variables:
            found[url] = _make_credentials(variables)
            hosts.add(str(replace(address, path="")).rstrip("/"))
    if len(hosts) > 1:
        raise InvalidInputError(
            f"the credentials in {prefix}USERNAME and so on would go to {' and '.join(sorted(hosts))}: "
            "put those of each into a credentials file"
        )
    return found


def _read_file(path: Path) -> list[Endpoint]:
    """Return the addresses of a credentials file with their credentials."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InvalidInputError(f"{path} must hold a JSON object, but is not JSON") from error
    if not isinstance(content, dict) or not all(map(is_url, content)):
        raise InvalidInputError(
            f"{path} must hold a JSON object of addresses such as mqtts://broker.example, each with an "
            f"object of {', '.join(_NAMES)}"
        )
    found = []
    for url, entry in content.items():
        address = Endpoint.parse(url)
        if not isinstance(entry, dict) or not all(isinstance(one, str) for one in entry.values()):
            raise InvalidInputError(f"{path}: {address} must have an object of strings")
        unknown = [name for name in entry if name not in _NAMES]
        if unknown:
            raise InvalidInputError(
                f"{path}: {address} has {', '.join(map(repr, unknown))}; expected some of "
                f"{', '.join(_NAMES)}"
            )
        found.append(replace(address, credentials=_make_credentials(entry)))
    return found


def _make_credentials(found: dict[str, str]) -> Credentials:
    for name in ("ca_file", "cert_file", "key_file"):
        if name in found and not Path(found[name]).is_file():
            raise InvalidInputError(f"{name} must be a file, but {found[name]} does not exist")
    return Credentials(**found)


def _is_part(address: Endpoint, entry: Endpoint) -> bool:
    """Return whether an address is at the host of an entry, and below its path."""
    same = ("scheme", "host", "port", "more")
    above = entry.path.rstrip("/")
    return all(getattr(address, name) == getattr(entry, name) for name in same) and (
        not above or f"{address.path}/".startswith(f"{above}/")
    )
