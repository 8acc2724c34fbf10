"""What a `[listing]` may say, and what is refused in it by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciliation.providers.listing_table import LAG_MS_UNSTATED, UNDECLARED
from reconciliation.providers.tables import DeclarationInvalid
from tests.contract.declaring import DECLARATION, declare

URL = "https://api.shop.example/v1"
REQUEST = '[listing.request]\npath = "/orders"\nquery = { since = "{window_start_unix}" }\n'
POSTED = '[listing.request]\nmethod = "POST"\nonly_reads = true\npath = "/q"\nbody = { id = "{operation}" }\n'
PLACES = (
    '[listing.places]\nvalues = { room = "$.id" }\n[listing.places.request]\npath = "/rooms"\n'
    '[listing.request]\npath = "/rooms/{place.room}/orders"\n'
)


def faults(folder: Path, listing: str) -> str:
    with pytest.raises(DeclarationInvalid) as caught:
        declare(folder, URL, text=DECLARATION + listing, environ={})
    return " ".join(caught.value.details["problems"])


def test_without_the_table_an_account_cannot_be_listed_and_says_so(tmp_path: Path) -> None:
    declared = declare(tmp_path, URL, environ={})
    assert declared.http.listing is None
    assert (declared.account.listing.offered, declared.account.listing.why_not) == (False, UNDECLARED)


OWN_LAG = "visibility_lag_ms = 2_000\n"


@pytest.mark.parametrize(
    ("text", "listing", "lag_ms"),
    [
        (DECLARATION, REQUEST, 2_000),
        (DECLARATION, f"[listing]\nlag_ms = 90000\n{REQUEST}", 90_000),
        (DECLARATION, f"[listing]\nlag_ms = 0\n{REQUEST}", 0),
        (
            DECLARATION.replace(OWN_LAG, "").replace("absence_is_proof = true\n", ""),
            REQUEST,
            LAG_MS_UNSTATED,
        ),
    ],
    ids=["the contract's", "its own", "none", "nobody states one"],
)
def test_a_list_lags_as_it_says_or_as_the_contract_does(
    text: str, listing: str, lag_ms: int, tmp_path: Path
) -> None:
    declared = declare(tmp_path, URL, text=text + listing, environ={})
    assert (declared.account.listing.offered, declared.account.listing.lag_ms) == (True, lag_ms)


def test_places_give_the_request_what_it_asks_for_them_by(tmp_path: Path) -> None:
    rules = declare(tmp_path, URL, text=DECLARATION + PLACES, environ={}).http.listing
    assert rules is not None
    assert dict(rules.place_paths) == {"room": "$.id"}


@pytest.mark.parametrize(
    ("listing", "says"),
    [
        ('[listing]\nnot_possible = "no"\n', "a sentence that says why"),
        (f'[listing]\nnot_possible = "Nobody can."\n{REQUEST}', "request"),
        ("[listing]\n", "[listing] request: found nothing"),
        (REQUEST.replace("window_start_unix", "key"), "{key}"),
        (REQUEST.replace("window_start_unix", "payload.room"), "{payload.room}"),
        (REQUEST.replace("window_start_unix", "place.room"), "[listing.places.values]"),
        (PLACES.replace("{place.room}", "{place.shop}"), "{place.shop}"),
        (PLACES.replace('"/rooms"', '"/rooms/{place.room}"'), "{place.room}"),
        (PLACES.replace('values = { room = "$.id" }\n', ""), "[listing.places] values"),
        (PLACES.replace('{ room = "$.id" }', "{}"), "a name and a JSONPath"),
        (PLACES.replace('"$.id"', '"$.["'), "[listing.places.values] room"),
        (f"[listing]\nspan_ms_max = 5\n{REQUEST}", "span_ms_max"),
        (POSTED, "{operation}"),
        ('[listing.requests."tool"]\npath = "/orders"\n', "one request for all of them"),
    ],
)
def test_a_wrong_listing_is_refused_by_name(listing: str, says: str, tmp_path: Path) -> None:
    assert says in faults(tmp_path, listing)


def test_a_place_is_known_to_the_listing_alone(tmp_path: Path) -> None:
    text = DECLARATION.replace('path = "/orders"', 'path = "/orders/{place.room}"', 1)
    with pytest.raises(DeclarationInvalid, match=r"place\.room"):
        declare(tmp_path, URL, text=text + PLACES, environ={})
