"""How far a request may reach: a table of addresses, a table of hosts, and what a listing may say."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from reconciliation.providers.reach import (
    AddressRange,
    ListedHost,
    OutOfReach,
    Reach,
    own_host,
    parse_listing,
    range_of,
)

PUBLIC, PRIVATE, LOOPBACK, NEVER = AddressRange

ADDRESSES = [
    # Public, also right beside what isn't.
    ("8.8.8.8", PUBLIC),
    ("1.1.1.1", PUBLIC),
    ("9.255.255.255", PUBLIC),
    ("11.0.0.0", PUBLIC),
    ("126.255.255.255", PUBLIC),
    ("128.0.0.0", PUBLIC),
    ("172.15.255.255", PUBLIC),
    ("172.32.0.0", PUBLIC),
    ("192.167.255.255", PUBLIC),
    ("192.169.0.0", PUBLIC),
    ("100.63.255.255", PUBLIC),
    ("100.128.0.0", PUBLIC),
    ("169.253.255.255", PUBLIC),
    ("169.255.0.0", PUBLIC),
    ("168.63.129.17", PUBLIC),
    ("223.255.255.255", PUBLIC),
    ("2606:4700:4700::1111", PUBLIC),
    ("2a00:1450:4001::1", PUBLIC),
    # Private.
    ("10.0.0.1", PRIVATE),
    ("10.255.255.255", PRIVATE),
    ("172.16.0.1", PRIVATE),
    ("172.31.255.255", PRIVATE),
    ("192.168.1.1", PRIVATE),
    ("100.64.0.1", PRIVATE),
    ("100.127.255.255", PRIVATE),
    ("fc00::1", PRIVATE),
    ("fd12:3456:789a::1", PRIVATE),
    # Loopback.
    ("127.0.0.1", LOOPBACK),
    ("127.255.255.254", LOOPBACK),
    ("::1", LOOPBACK),
    # Link-local, and metadata wherever a cloud has put it.
    ("169.254.169.254", NEVER),
    ("169.254.170.2", NEVER),
    ("169.254.0.1", NEVER),
    ("fe80::1", NEVER),
    ("febf:ffff::1", NEVER),
    ("fd00:ec2::254", NEVER),
    ("fd00:ec2::23", NEVER),
    ("fd20:ce::254", NEVER),
    ("fd00:42::42", NEVER),
    ("100.100.100.200", NEVER),
    ("168.63.129.16", NEVER),
    ("192.0.0.192", NEVER),
    # Nobody's, everybody's, or for documents only.
    ("0.0.0.0", NEVER),  # noqa: S104 - nobody listens here
    ("0.1.2.3", NEVER),
    ("::", NEVER),
    ("192.0.2.1", NEVER),
    ("198.51.100.1", NEVER),
    ("203.0.113.1", NEVER),
    ("198.18.0.1", NEVER),
    ("192.88.99.1", NEVER),
    ("224.0.0.1", NEVER),
    ("239.255.255.255", NEVER),
    ("240.0.0.1", NEVER),
    ("255.255.255.255", NEVER),
    ("ff02::1", NEVER),
    ("fec0::1", NEVER),
    ("2001:db8::1", NEVER),
    ("3fff::1", NEVER),
    ("100::1", NEVER),
    ("2001:20::1", NEVER),
    ("4000::1", NEVER),
    ("5f00::1", NEVER),
    # An IPv4 address inside an IPv6 address: mapped is the address itself.
    ("::ffff:8.8.8.8", PUBLIC),
    ("::ffff:127.0.0.1", LOOPBACK),
    ("::ffff:10.0.0.1", PRIVATE),
    ("::ffff:169.254.169.254", NEVER),
    ("::ffff:a9fe:a9fe", NEVER),
    # Compatible, translated.
    ("::127.0.0.1", NEVER),
    ("::8.8.8.8", NEVER),
    ("::ffff:0:127.0.0.1", NEVER),
    # NAT64: a gateway turns it into the IPv4 address.
    ("64:ff9b::8.8.8.8", PUBLIC),
    ("64:ff9b::127.0.0.1", NEVER),
    ("64:ff9b::10.0.0.1", NEVER),
    ("64:ff9b::169.254.169.254", NEVER),
    ("64:ff9b:1::169.254.169.254", NEVER),
    # 6to4 and Teredo, whatever is inside; ISATAP by what is inside.
    ("2002:7f00:1::", NEVER),
    ("2002:a9fe:a9fe::1", NEVER),
    ("2002:808:808::1", NEVER),
    ("2001:0:4136:e378:8000:63bf:3fff:fdd2", NEVER),
    ("2606:4700::5efe:127.0.0.1", NEVER),
    ("2606:4700::200:5efe:10.0.0.1", NEVER),
    ("2606:4700::5efe:8.8.8.8", PUBLIC),
    ("fd12::5efe:169.254.169.254", NEVER),
]


@pytest.mark.parametrize(("address", "kind"), ADDRESSES)
def test_an_address_is_of_one_kind(address: str, kind: AddressRange) -> None:
    assert range_of(ip_address(address)) is kind


def test_the_table_has_no_address_twice_and_each_kind_often() -> None:
    assert len({address for address, _ in ADDRESSES}) == len(ADDRESSES) >= 50
    assert all(sum(kind is one for _, kind in ADDRESSES) >= 3 for one in AddressRange)


def reach(*listed: str) -> Reach:
    return Reach(tuple(parse_listing(one) for one in listed))


@pytest.mark.parametrize("kind", AddressRange)
@pytest.mark.parametrize("listed", ["", "=private", "=loopback", "=private+loopback"])
def test_a_listing_opens_its_own_ranges_and_never_the_forbidden(kind: AddressRange, listed: str) -> None:
    allowed = kind is PUBLIC or (kind is not NEVER and kind.value in listed)
    for address, of in ADDRESSES:
        if of is kind:
            host = reach(f"shop.example{listed}")
            if allowed:
                host.require_reachable("shop.example", 443, [address])
            else:
                with pytest.raises(OutOfReach):
                    host.require_reachable("shop.example", 443, [address])


@pytest.mark.parametrize("addresses", [["8.8.8.8", "169.254.169.254"], ["10.0.0.1", "8.8.8.8"]])
def test_one_forbidden_address_refuses_the_whole_name(addresses: list[str]) -> None:
    with pytest.raises(OutOfReach):
        reach("shop.example").require_reachable("shop.example", 443, addresses)


def test_a_zone_hides_no_link_local_address() -> None:
    with pytest.raises(OutOfReach, match="never reached"):
        reach("shop.example=private").require_reachable("shop.example", 443, ["fe80::1%eth0"])


@pytest.mark.parametrize(
    ("host", "port"),
    [
        ("api.shop.example", 443),
        ("shop.example.evil.example", 443),
        ("evilshop.example", 443),
        ("shop.example", 8443),
        ("93.184.216.34", 443),
        ("", 443),
    ],
)
def test_an_unlisted_host_or_port_is_refused_before_its_name_is_asked_for(host: str, port: int) -> None:
    with pytest.raises(OutOfReach, match="not a host that requests may go to"):
        reach("shop.example:443").require_listed(host, port)


@pytest.mark.parametrize("host", ["shop.example", "SHOP.example", "shop.example."])
def test_a_name_is_listed_in_every_way_of_writing_it(host: str) -> None:
    assert reach("Shop.Example:443=private").require_listed(host, 443) == {PRIVATE}


def test_nothing_is_listed_by_default() -> None:
    with pytest.raises(OutOfReach):
        Reach().require_listed("shop.example", 443)


@pytest.mark.parametrize(
    "host",
    [
        "2130706433",
        "017700000001",
        "0x7f000001",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "127.1",
        "127.0.1",
        "127.0.0.01",
        "0xA9FEA9FE",
        "169.254.43518",
        "0",
        "shop.0x7f",
    ],
)
def test_a_number_in_another_form_is_refused_even_if_it_is_listed(host: str) -> None:
    listed = Reach((ListedHost(host=host.lower(), ranges=frozenset({PRIVATE, LOOPBACK})),))
    with pytest.raises(OutOfReach, match="a number in a form"):
        listed.require_listed(host, 80)


def test_an_accounts_own_address_lists_its_host_and_port_alone() -> None:
    own = Reach(own_host("https://Shop.example/v1", [PRIVATE]))
    assert own.require_listed("shop.example", 443) == {PRIVATE}
    assert Reach(own_host("http://shop.example:8080", ())).require_listed("shop.example", 8080) == set()
    for port in (80, 8443):
        with pytest.raises(OutOfReach):
            own.require_listed("shop.example", port)
    assert own_host(None, ()) == ()


def test_an_ipv6_address_is_listed_in_any_of_its_forms() -> None:
    assert reach("[0:0::1]=loopback").require_listed("::1", 80) == {LOOPBACK}


@pytest.mark.parametrize(
    ("text", "listed"),
    [
        ("shop.example", ListedHost(host="shop.example")),
        (" shop.example:8443 ", ListedHost(host="shop.example", port=8443)),
        ("db_1.internal=private", ListedHost(host="db_1.internal", ranges=frozenset({PRIVATE}))),
        ("[fd12::1]:80=private", ListedHost(host="fd12::1", port=80, ranges=frozenset({PRIVATE}))),
        (
            "localhost=loopback+private",
            ListedHost(host="localhost", ranges=frozenset({LOOPBACK, PRIVATE})),
        ),
    ],
)
def test_a_listing_is_a_host_perhaps_a_port_and_perhaps_ranges(text: str, listed: ListedHost) -> None:
    assert parse_listing(text) == listed


@pytest.mark.parametrize(
    "text",
    [
        "https://shop.example",
        "shop.example/v1",
        "*.shop.example",
        "shop.example=public",
        "shop.example=never",
        "shop.example=",
        "shop.example:0",
        "shop.example:65536",
        "::1",
        "10.0.0.0/8",
    ],
)
def test_a_listing_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_listing(text)
