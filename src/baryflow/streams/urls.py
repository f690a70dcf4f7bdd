"""Where a broker or server is, and how it knows us."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from baryflow.exceptions import InvalidInputError

#: Variables of the environment that hold credentials begin with this.
PREFIX = "BARYFLOW_"


@dataclass(frozen=True)
class Address:
    """A URL, taken apart.

    Attributes
    ----------
    scheme, host : str
    port : int or None
        None: the usual one.
    path : str
        Without the slash at its beginning: a topic, say.
    options : dict of str → str
        What stands behind the question mark.
    more : tuple of str
        Further ``host:port`` of the same cluster, from behind commas.
    """

    scheme: str
    host: str
    port: int | None
    path: str
    options: dict[str, str] = field(default_factory=dict)
    more: tuple[str, ...] = ()

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port is None else f":{self.port}"
        return f"{self.scheme}://{','.join((host + port, *self.more))}/{self.path}"

    def option(self, name: str, default: str) -> str:
        """Return an option, or what it is without being named.

        Parameters
        ----------
        name, default : str

        Returns
        -------
        str
        """
        return self.options.get(name, default)

    def check_options(self, *known: str, several: bool = False) -> None:
        """Refuse options that nobody would heed.

        Parameters
        ----------
        *known : str
        several : bool, default=False
            Whether more than one host can be heeded.

        Raises
        ------
        InvalidInputError
            If there are others.
        """
        if self.more and not several:
            raise InvalidInputError(f"expected one host in {self.scheme}://, got {len(self.more) + 1}")
        strange = [name for name in self.options if name not in known]
        if strange:
            raise InvalidInputError(
                f"{self} has no option {', '.join(map(repr, strange))}; it has {', '.join(known)}"
            )


def parse_address(url: str) -> Address:
    """Take a URL apart.

    Parameters
    ----------
    url : str
        ``scheme://host:port/path?option=value``; a cluster may have several ``host:port``, with commas
        between them. A ``#`` is part of the path, as topics have it.

    Returns
    -------
    Address

    Raises
    ------
    InvalidInputError
        If it has no host, its port is no number, or it holds a password, which others could read in
        the list of processes.
    """
    try:
        parts = urlsplit(url.replace("#", "%23"))
        first, *more = parts.netloc.split(",")
        for one in more:
            if not urlsplit(f"//{one}").hostname:
                raise ValueError("a host between commas is empty")
            _ = urlsplit(f"//{one}").port  # raises if it is no number
        parts = parts._replace(netloc=first) if more else parts
        port = parts.port
    except ValueError:  # what it says may be a piece of a password
        raise InvalidInputError(
            "expected scheme://host:port/path, got a URL whose host is empty or whose port is no number"
        ) from None
    if any("@" in one for one in (parts.netloc, *more)):
        raise InvalidInputError(
            f"a URL must not hold a user or password, as others can see it: put them into "
            f"{PREFIX}USERNAME and {PREFIX}PASSWORD, or into a file"
        )
    if not parts.hostname:
        raise InvalidInputError(f"expected scheme://host:port/path, got {url!r}, which names no host")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    path = unquote(parts.path.removeprefix("/"))
    return Address(parts.scheme, parts.hostname, port, path, options, tuple(more))


def is_url(what: str | Path) -> bool:
    """Return whether something is a URL rather than a file.

    Parameters
    ----------
    what : str or path

    Returns
    -------
    bool
    """
    return isinstance(what, str) and "://" in what


@dataclass(frozen=True)
class Credentials:
    """How a broker or server knows us, and we it; passwords are never shown.

    Attributes
    ----------
    username, password : str or None
    ca_file : str or None
        Certificates of authorities that are trusted; None: those of the system.
    cert_file, key_file : str or None
        Our own certificate and its key.
    """

    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None


def read_credentials(
    path: str | os.PathLike[str] | None = None, environment: Mapping[str, str] | None = None
) -> Credentials:
    """Read credentials from a file, and what it does not say from the environment.

    Parameters
    ----------
    path : path, optional
        A JSON object with some of ``username``, ``password``, ``ca_file``, ``cert_file``, ``key_file``.
    environment : mapping, optional
        Where ``BARYFLOW_USERNAME`` and the like are looked up; the process's own without it.

    Returns
    -------
    Credentials

    Raises
    ------
    InvalidInputError
        If the file holds something else, or names a file that is not there.
    OSError
        If it cannot be read.
    """
    environment = os.environ if environment is None else environment
    names = [one.name for one in fields(Credentials)]
    found = {
        name: environment[PREFIX + name.upper()]
        for name in names
        if PREFIX + name.upper() in environment
    }
    if path is not None:
        try:
            told = json.loads(Path(path).read_text(encoding="utf-8"))
        except ValueError as error:
            raise InvalidInputError(f"{path} must hold a JSON object, but is not JSON") from error
        if not isinstance(told, dict) or not all(isinstance(value, str) for value in told.values()):
            raise InvalidInputError(f"{path} must hold a JSON object of texts: {', '.join(names)}")
        strange = [name for name in told if name not in names]
        if strange:
            raise InvalidInputError(
                f"{path} holds {', '.join(map(repr, strange))}; expected some of {', '.join(names)}"
            )
        found |= told
    for name in ("ca_file", "cert_file", "key_file"):
        if name in found and not Path(found[name]).is_file():
            raise InvalidInputError(f"{name} must be a file, but there is none at {found[name]}")
    return Credentials(**found)
