"""The address of a server and the key that it gets: what is checked before anything is sent."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from ipaddress import ip_address
from urllib.parse import urlsplit

from consilience.core.errors import Connection, ConsilienceError

DEFAULT_KEY_VARIABLE = "OPENAI_API_KEY"
"""The environment variable of the key, where none is named."""

EXAMPLE = "http://127.0.0.1:8000/v1"

ROUTES = ("/chat/completions", "/completions", "/completion", "/decisions", "/systemone", "/models")
"""Routes that a base URL must not contain; the client adds them."""

SHORTEST_SECRET = 8
"""Characters of a key that is kept out of texts. A shorter one, such as ``none``, is no secret."""


def base_url_of(connection: Connection) -> str:
    """The base URL of a connection, without a final slash; a wrong one raises.

    It is http or https, and has no user, password, query, fragment or route.
    """

    def wrong(found: str, expected: str, todo: str = "") -> ConsilienceError:
        return ConsilienceError(found, expected=expected, where="--base-url", todo=todo)

    text = connection.base_url.strip().rstrip("/")
    scheme, separator, _ = text.partition("://")
    shown, schemes = text.rpartition("@")[2], "http:// or https://"
    if not separator:
        todo = f"Write http://{shown} or https://{shown}." if shown else f"Write {EXAMPLE}."
        raise wrong(f"'{shown}' has no scheme" if shown else "empty", schemes, todo)
    if scheme.lower() not in ("http", "https"):
        raise wrong(f"the scheme '{scheme}'", schemes, f"Write it as {EXAMPLE}.")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise wrong(f"not a URL: {error}", f"a URL such as {EXAMPLE}") from error
    if not parts.hostname or port == 0 or any(map(str.isspace, text)):
        raise wrong(f"'{shown}'", f"a URL with a host, such as {EXAMPLE}")
    if parts.username is not None or parts.password is not None:
        todo = "Put the key into an environment variable, and name it with --api-key-env."
        raise wrong("a user name or a password in the URL", f"a URL such as {EXAMPLE}", todo)
    if "?" in text or "#" in text:
        raise wrong(f"'{text}'", "no '?' and no '#' in the URL", f"Write it as {EXAMPLE}.")
    for route in ROUTES:
        if text.endswith(route):
            todo = f"Write {text.removesuffix(route)}; the route is added to it."
            raise wrong(f"'{text}'", "a URL without a route", todo)
    return text


@dataclass(frozen=True, slots=True)
class Key:
    """A key that no text shows."""

    _text: str = field(repr=False)

    @property
    def headers(self) -> dict[str, str]:
        """The header that has the key; nothing without one."""
        return {"authorization": f"Bearer {self._text}"} if self._text else {}

    def removed_from(self, text: str) -> str:
        """The text without the key, also where its characters are escapes of JSON."""
        if len(self._text) < SHORTEST_SECRET:
            return text
        if "\\" in text:
            escaped = (rf"(?:\\?{re.escape(one)}|\\u(?i:{ord(one):04x}))" for one in self._text)
            text = re.sub("".join(escaped), "[key]", text)  # re keeps what it has compiled
        return text.replace(self._text, "[key]")


def key_of(connection: Connection) -> Key:
    """The key that a server gets: that of the environment variable that the connection names.

    Without a name that of ``OPENAI_API_KEY``, which is sent over https or to this machine only.
    """
    name = connection.key_variable
    key = os.environ.get(name or DEFAULT_KEY_VARIABLE, "").strip()
    url = base_url_of(connection)
    if name is None and urlsplit(url).scheme.lower() != "https" and not is_here(url):
        return Key("")
    if name is not None and not key:
        raise ConsilienceError(
            f"the environment variable '{name}' is not set or empty",
            expected="the key of the server in it",
            where="--api-key-env",
            todo=f"Set it, as in `export {name}=...`, or leave --api-key-env out if the server "
            "wants no key.",
        )
    if not (key.isascii() and key.isprintable()):
        raise ConsilienceError(
            f"the key in '{name or DEFAULT_KEY_VARIABLE}' has a character that no header can have",
            expected="printable ASCII characters",
            todo="Check how the variable was set.",
        )
    return Key(key)


def host_of(url: str) -> str:
    """The host of a URL as it is written there: of IPv6 in brackets."""
    host = urlsplit(url).hostname or ""
    return f"[{host}]" if ":" in host else host


def is_here(url: str) -> bool:
    """Whether the host is this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def url_of(base: str, path: str) -> str:
    """The URL of a route: one with a slash at its start is beside ``/v1``, others are below it."""
    return base.removesuffix("/v1") + path if path.startswith("/") else f"{base}/{path}"
