"""The HTTP API: `/api/v1`, JSON in and out, bearer tokens, problems as RFC 9457.

`assembly` puts it together; `runs`, `operations` and `cases` hold the calls, each one domain call whose
result is mapped. `bodies` are the requests, `answers` the responses; `reading` reads strictly, `bearer` says
who calls, `problems` turns refusals into answers, `showing` and `listing` read what is on record.
"""
