"""From one page of a list to the next: how it is asked for, and when there is none or none is needed."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from reconciliation.providers.lookup_tables import LookupRules, NextBy, Pages
from reconciliation.providers.paths import MISSING, Missing, text_at, value_at
from reconciliation.providers.templates import Values
from reconciliation.providers.transport import Answer

# The parameters that ask for a further page.
Parameters = tuple[tuple[str, str], ...]

# A link's query goes back to the provider as it came; no page of a list needs a longer one.
LINK_PARAMETERS_MAX = 20
LINK_LENGTH_MAX = 4000
HEADER_LENGTH_MAX = 8000
# What may name a next page, in any of the forms that RFC 8288 allows.
_NEXT_NAMED = re.compile(r"""rel\s{0,4}=\s{0,4}["']?[^"',;]{0,200}\bnext\b(?!-)""", re.IGNORECASE)
# `<https://…?page=2>; rel="next"` (RFC 8288).
_NEXT_LINK = re.compile(r'<([^<>]{1,2000})>\s*;[^<,]{0,200}?\brel="?next"?(?=[;,\s]|$)')


def following(
    rules: LookupRules, answer: Answer, document: Any, page: Parameters
) -> tuple[Parameters | None, bool]:
    """The parameters of the page after this one, None where there is none; and whether the list goes on
    where we can't follow. `page` are the parameters of this one.
    """
    more = says(rules.more, document)
    if rules.pages is None:
        return None, more
    if says(rules.pages.last, document):
        return None, False
    found = _next_page(rules, rules.pages, answer, document, page)
    if found is None:
        # It says that there is more, and not where, or where in a form that we can't follow.
        return None, more or _names_a_link(rules.pages, answer, document)
    return (None, False) if rules.more is not None and not more else (found, False)


def says(path: str | None, document: Any) -> bool:
    """Whether the answer says yes at this path."""
    found = MISSING if path is None else value_at(path, document)
    return not isinstance(found, Missing) and bool(found)


def reaches_back(rules: LookupRules, document: Any, values: Values) -> bool:
    """Whether a list of the newest first has come to what is older than the time asked about."""
    pages, items = rules.pages, value_at(rules.items, document)
    if pages is None or pages.newest_first is None or not isinstance(items, list) or not items:
        return False
    made_at = instant(text_at(pages.newest_first, items[-1]))
    return made_at is not None and values.window_start_at is not None and made_at < values.window_start_at


def instant(written: str | None) -> datetime | None:
    """An instant as providers write it: seconds, ISO 8601 or RFC 5322; None where it is none of these."""
    if written is None:
        return None
    try:
        if re.fullmatch(r"[0-9]{9,11}(?:\.[0-9]{1,9})?", written):
            return datetime.fromtimestamp(float(written), UTC)
        at = datetime.fromisoformat(written)
    except ValueError:
        try:
            at = parsedate_to_datetime(written)
        except ValueError:
            return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _names_a_link(pages: Pages, answer: Answer, document: Any) -> bool:
    """Whether the answer names a next page at all, in whatever form: such a list isn't known to be whole."""
    if pages.by is not NextBy.LINK:
        return False
    if pages.at is not None:
        return says(pages.at, document)
    return _NEXT_NAMED.search(answer.headers.get("link", "")) is not None


def _next_page(
    rules: LookupRules, pages: Pages, answer: Answer, document: Any, page: Parameters
) -> Parameters | None:
    items = value_at(rules.items, document)
    match pages.by:
        case NextBy.LAST_RECORD:
            last = text_at(pages.at, items[-1]) if isinstance(items, list) and items else None
            return ((pages.parameter, last),) if last else None
        case NextBy.CURSOR:
            cursor = text_at(pages.at, document)
            return ((pages.parameter, cursor),) if cursor else None
        case NextBy.NUMBER:
            full = isinstance(items, list) and len(items) >= pages.size
            number = int(page[0][1]) if page else 1
            return ((pages.parameter, str(number + 1)),) if full else None
        case NextBy.LINK:
            if pages.at is not None:
                return _link_query(text_at(pages.at, document))
            found = _NEXT_LINK.search(answer.headers.get("link", "")[:HEADER_LENGTH_MAX])
            return _link_query(found[1] if found else None)


def _link_query(url: str | None) -> Parameters | None:
    """The parameters of a link; the host and path are the declaration's, whatever the link says."""
    if not url or len(url) > LINK_LENGTH_MAX:
        return None
    try:
        pairs = parse_qsl(urlsplit(url).query, keep_blank_values=True, max_num_fields=LINK_PARAMETERS_MAX)
    except ValueError:
        return None
    return tuple(pairs) or None
