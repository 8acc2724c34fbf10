"""Which hosts outgoing requests may go to, judged by the addresses that their names lead to.

A request goes only to a host that an administrator has listed: by the account's own file (the host and port
of its `base_url`), or by `RECOURSE_ALLOWED_PROVIDER_HOSTS`. Public addresses are meant by that; private and
loopback ones only where they are listed too. Link-local, metadata and all other special addresses are never
reached, whatever is listed. The judgement is made on the addresses after resolution, and the connection goes
to the address judged, so a name that changes its mind in between gains nothing.
`docs/decisions/0013-how-far-a-request-may-reach.md` has the why.

The ranges are those of the IANA special-purpose registries (RFC 6890 and its updates), written out, because
what a library calls "global" has changed between its versions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import assert_never
from urllib.parse import urlsplit

import httpcore
from django.conf import settings

PORTS = {"http": 80, "https": 443, "smtp": 587, "smtps": 465}


class OutOfReach(httpcore.ConnectError):
    """The host isn't listed, or leads to an address that it isn't listed with; nothing was sent."""


class AddressRange(StrEnum):
    PUBLIC = "public"
    PRIVATE = "private"
    LOOPBACK = "loopback"
    # Never reached, whatever is listed.
    NEVER = "never"


# What a listing can add to the public addresses.
LISTABLE = (AddressRange.PRIVATE, AddressRange.LOOPBACK)


def _v4(*networks: str) -> tuple[IPv4Network, ...]:
    return tuple(IPv4Network(one) for one in networks)


def _v6(*networks: str) -> tuple[IPv6Network, ...]:
    return tuple(IPv6Network(one) for one in networks)


_V4_NEVER = _v4(
    "0.0.0.0/8",  # this network: reaches the host itself on many systems
    "100.100.100.200/32",  # metadata (Alibaba Cloud), inside a private range
    "168.63.129.16/32",  # metadata and agent channel (Azure), inside a public range
    "169.254.0.0/16",  # link-local, with the metadata addresses of most clouds
    "192.0.0.0/24",  # protocol assignments, with a metadata address (Oracle Cloud)
    "192.0.2.0/24",  # documentation
    "192.88.99.0/24",  # 6to4 relays, deprecated
    "198.18.0.0/15",  # benchmarks
    "198.51.100.0/24",  # documentation
    "203.0.113.0/24",  # documentation
    "224.0.0.0/4",  # multicast
    "240.0.0.0/4",  # reserved, and broadcast
)
_V4_LOOPBACK = _v4("127.0.0.0/8")
# The last one is shared by carriers and used inside clouds and overlay networks.
_V4_PRIVATE = _v4("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")

_V6_NEVER = _v6(
    "::/128",  # unspecified
    "::ffff:0:0:0/96",  # IPv4-translated (SIIT)
    "64:ff9b:1::/48",  # local-use NAT64: where the IPv4 address stands is the network's secret
    "100::/64",  # discard
    "2001::/32",  # Teredo, with an IPv4 address inside
    "2001:2::/48",  # benchmarks
    "2001:10::/28",  # ORCHID
    "2001:20::/28",  # ORCHID v2
    "2001:db8::/32",  # documentation
    "2002::/16",  # 6to4, with an IPv4 address inside
    "3fff::/20",  # documentation
    "fd00:42::42/128",  # metadata (Scaleway), inside a private range
    "fd00:ec2::/32",  # metadata (Amazon), inside a private range
    "fd20:ce::254/128",  # metadata (Google Cloud), inside a private range
    "fe80::/10",  # link-local
    "fec0::/10",  # site-local, deprecated
    "ff00::/8",  # multicast
)
_V6_LOOPBACK = IPv6Address("::1")
_V6_PRIVATE = IPv6Network("fc00::/7")
# Only this much of IPv6 is given out; what isn't given out belongs to nobody.
_V6_PUBLIC = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")
# An interface id of this form ends in an IPv4 address (ISATAP, RFC 5214); one bit says "globally unique".
_ISATAP, _ISATAP_MASK = 0x00005EFE, 0xFDFFFFFF


def range_of(address: IPv4Address | IPv6Address) -> AddressRange:
    """Say what kind of address this is; an IPv4 address inside an IPv6 address counts as itself, or worse."""
    match address:
        case IPv4Address():
            return _range_of_v4(address)
        case IPv6Address():
            return _range_of_v6(address)
        case _:
            assert_never(address)


def _range_of_v4(address: IPv4Address) -> AddressRange:
    if any(address in network for network in _V4_NEVER):
        return AddressRange.NEVER
    if any(address in network for network in _V4_LOOPBACK):
        return AddressRange.LOOPBACK
    if any(address in network for network in _V4_PRIVATE):
        return AddressRange.PRIVATE
    return AddressRange.PUBLIC


def _range_of_v6(address: IPv6Address) -> AddressRange:
    if address.ipv4_mapped is not None:
        # The system connects to the IPv4 address itself.
        return _range_of_v4(address.ipv4_mapped)
    if address == _V6_LOOPBACK:
        return AddressRange.LOOPBACK
    if any(address in network for network in _V6_NEVER):
        return AddressRange.NEVER
    if address in _NAT64:
        return _only_public(int(address))
    if address in _V6_PRIVATE:
        inside = _only_public(int(address)) if _ends_in_v4(address) else AddressRange.PUBLIC
        return AddressRange.PRIVATE if inside is AddressRange.PUBLIC else AddressRange.NEVER
    if address in _V6_PUBLIC:
        return _only_public(int(address)) if _ends_in_v4(address) else AddressRange.PUBLIC
    return AddressRange.NEVER


def _ends_in_v4(address: IPv6Address) -> bool:
    return ((int(address) >> 32) & _ISATAP_MASK) == _ISATAP


def _only_public(number: int) -> AddressRange:
    """What a gateway would translate into the IPv4 address in the last 32 bits: public, or never reached."""
    inside = _range_of_v4(IPv4Address(number & 0xFFFFFFFF))
    return AddressRange.PUBLIC if inside is AddressRange.PUBLIC else AddressRange.NEVER


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedHost:
    """A host that requests may go to; `port` None is any, `ranges` are what it may lead to beside public."""

    host: str
    port: int | None = None
    ranges: frozenset[AddressRange] = frozenset()

    def covers(self, host: str, port: int) -> bool:
        return self.host == _plain(host) and self.port in (None, port)


@dataclass(frozen=True, slots=True)
class Reach:
    """The hosts that one account's requests may go to."""

    hosts: tuple[ListedHost, ...] = ()

    def require_listed(self, host: str, port: int) -> frozenset[AddressRange]:
        """The ranges that the host is listed with, beside public. Raises `OutOfReach`."""
        listed = [one for one in self.hosts if one.covers(host, port)]
        if not listed:
            raise OutOfReach(f"{_shown(host)}:{port} is not a host that requests may go to")
        if _is_odd_number(host):
            raise OutOfReach(f"{_shown(host)} is a number in a form that readers understand differently")
        return frozenset[AddressRange]().union(*(one.ranges for one in listed))

    def require_reachable(self, host: str, port: int, addresses: Iterable[str]) -> None:
        """Raise `OutOfReach` unless every address is in a range that the host is listed with.

        One forbidden address among good ones refuses all: whoever answers for the name would choose.
        """
        ranges = self.require_listed(host, port) | {AddressRange.PUBLIC}
        for text in addresses:
            kind = range_of(ip_address(text.split("%", maxsplit=1)[0]))
            if kind not in ranges:
                because = "never reached" if kind is AddressRange.NEVER else f"{kind}, and not listed so"
                raise OutOfReach(f"{_shown(host)} leads to {text}, which is {because}")


def own_host(base_url: str | None, ranges: Iterable[AddressRange]) -> tuple[ListedHost, ...]:
    """The host and port of an account's own address, as its file lists them; none without an address."""
    if base_url is None:
        return ()
    parts = urlsplit(base_url)
    port = parts.port or PORTS.get(parts.scheme)
    return (ListedHost(host=_plain(parts.hostname or ""), port=port, ranges=frozenset(ranges)),)


def environment_reach(own: tuple[ListedHost, ...] = ()) -> Reach:
    """An account's own hosts, and those that the environment lists for every account."""
    return Reach((*own, *settings.RECOURSE_ALLOWED_PROVIDER_HOSTS))


_LISTING = re.compile(
    r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?(?:=(?P<ranges>[a-z+]+))?"
)


def parse_listing(text: str) -> ListedHost:
    """Read one item of the environment's list: `host`, `host:port`, `host=private`, `host=private+loopback`.

    An IPv6 address stands in brackets. Raises `ValueError` with a sentence.
    """
    found = _LISTING.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not of the form host, host:port or host:port=private+loopback")
    words = (found["ranges"] or "").split("+") if found["ranges"] else []
    if unknown := [word for word in words if word not in LISTABLE]:
        raise ValueError(f"{text!r}: {unknown[0]!r} is neither private nor loopback")
    port = int(found["port"]) if found["port"] else None
    if port is not None and not 1 <= port <= 65535:
        raise ValueError(f"{text!r}: {port} is no port")
    ranges = frozenset(AddressRange(word) for word in words)
    return ListedHost(host=_plain(found["host"].strip("[]")), port=port, ranges=ranges)


def _plain(host: str) -> str:
    """A host's name as it is compared; an address in its one usual form."""
    host = host.lower().removesuffix(".")
    try:
        return str(ip_address(host))
    except ValueError:
        return host


def _is_odd_number(host: str) -> bool:
    """Whether a resolver might read the host as a number although it is no plain address: 0x7f.1, 2130706433.

    As in WHATWG's URL standard: a host whose last label is a number is an IPv4 address or nothing.
    """
    last = host.removesuffix(".").rpartition(".")[2]
    if not re.fullmatch(r"[0-9]+|0[xX][0-9A-Fa-f]*", last):
        return False
    try:
        ip_address(host)
    except ValueError:
        return True
    return False


def _shown(host: str) -> str:
    return "".join(one if one.isprintable() else "\ufffd" for one in host)[:100]
