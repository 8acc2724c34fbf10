"""All settings, in one file, driven by the environment; an empty environment imports and checks.

What each variable does, and which a production needs, is told in docs/operating.md.
"""

from __future__ import annotations

import logging
import os
import secrets
import sys
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import structlog
from csp.constants import NONE, SELF
from django.core.exceptions import ImproperlyConfigured

from console.logs import Redacted, tracebacks_without_locals
from console.variables import (
    database,
    flag,
    identity_provider,
    identity_provider_origins,
    listed_hosts,
    mail,
    number,
    public_url,
    secret,
    webhooks,
    words,
)

BASE_DIR: Final = Path(__file__).resolve().parent.parent

# --- What this deployment is -------------------------------------------------------------------------

DEBUG = flag("RECOURSE_DEBUG", default=False)
RECOURSE_ENVIRONMENT = os.environ.get("RECOURSE_ENVIRONMENT", "") or "Development"
RECOURSE_STATE_DIR = os.environ.get("RECOURSE_STATE_DIR", "")
# Accounts of the shipped catalogue that this installation uses: RECOURSE_PROVIDERS="stripe-refunds, slack".
RECOURSE_PROVIDERS = words("RECOURSE_PROVIDERS")
RECOURSE_PROVIDERS_DIR = words("RECOURSE_PROVIDERS_DIR", separator=os.pathsep)
# Where outgoing requests may go beside the accounts' own hosts, and what those may lead to beside public.
RECOURSE_ALLOWED_PROVIDER_HOSTS = listed_hosts("RECOURSE_ALLOWED_PROVIDER_HOSTS")
SANDBOX_URL = os.environ.get("SANDBOX_URL", "")

# Without a secret of its own a process makes one up: it imports, and checks refuse to serve with it.
RECOURSE_SECRETS_ARE_TEMPORARY = not (
    os.environ.get("RECOURSE_SECRET_KEY") and os.environ.get("RECOURSE_KEY_SECRET")
)
SECRET_KEY = os.environ.get("RECOURSE_SECRET_KEY", "") or secrets.token_urlsafe(50)
# Mints the idempotency keys of every operation: lose it and a restored journal mints other keys.
RECOURSE_KEY_SECRET = os.environ.get("RECOURSE_KEY_SECRET", "") or secrets.token_urlsafe(50)

ALLOWED_HOSTS = words("RECOURSE_ALLOWED_HOSTS") or ["127.0.0.1", "localhost", "[::1]"]
CSRF_TRUSTED_ORIGINS = words("RECOURSE_TRUSTED_ORIGINS")

# --- Django ------------------------------------------------------------------------------------------

INSTALLED_APPS = [
    "console",
    "reconciliation",
    "runs",
    # Without what it would find by itself: `console.admin_window` says what is shown.
    "django.contrib.admin.apps.SimpleAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.postgres",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django_htmx",
    "template_partials",
    "csp",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "allauth.usersessions",
]

MIDDLEWARE = [
    "console.observing.Observing",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "console.headers.NothingKept",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "console.sessions.note_use",
    "django.contrib.messages.middleware.MessageMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]

ROOT_URLCONF = "console.urls"
WSGI_APPLICATION = "console.wsgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "console.pages.session.shell",
            ],
        },
    }
]

# One alias. DATABASE_URL logs in as a member of recourse_app; DATABASE_OWNER_URL serves `migrate` alone
# and belongs in no web or Celery process.
DATABASES = {
    "default": database(os.environ.get("DATABASE_URL", "") or "postgresql://recourse@127.0.0.1/recourse")
}
RECOURSE_DATABASE_OWNER_URL = os.environ.get("DATABASE_OWNER_URL", "")
# Off only behind a pooler that hands prepared statements of one client to another.
RECOURSE_PREPARED_STATEMENTS = flag("RECOURSE_PREPARED_STATEMENTS", default=True)
RECOURSE_APP_GROUP = "recourse_app"
# Tables whose rows the application may add and read, never change; `migrate` takes the rest away.
APPEND_ONLY_TABLES = [
    "runs_auditleaf",
    "reconciliation_casenote",
    "reconciliation_caseattachment",
    "reconciliation_tightening",
    "reconciliation_declaration",
    "reconciliation_bulkitem",
    "reconciliation_bulkoutcome",
    "reconciliation_approvalmessage",
]
# Tables whose rows the application may add and change, as far as their triggers allow, and never delete.
NEVER_DELETED_TABLES = ["reconciliation_approvalrequest", "reconciliation_absencerequest"]

# Counts sign-ins and calls in a table, so that every process counts the same and no further server is needed.
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.db.DatabaseCache",
        "LOCATION": "console_cache",
        # What is culled is forgotten: far more than the limits let anybody make within their time.
        "OPTIONS": {"MAX_ENTRIES": 100_000},
    }
}

LANGUAGE_CODE = "en-gb"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False

STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
_static_root = os.environ.get("RECOURSE_STATIC_ROOT", "") or str(BASE_DIR / "build" / "static")
# The finders serve straight from the source tree, so that a demo or a test needs no collectstatic;
# a production that ran it gets the files under names that change with their content.
RECOURSE_COLLECTED_STATIC = (Path(_static_root) / "staticfiles.json").is_file()
# WhiteNoise warns of a folder that isn't there, so it is named only when it is, or is being filled.
STATIC_ROOT = _static_root if RECOURSE_COLLECTED_STATIC or "collectstatic" in sys.argv else None
WHITENOISE_USE_FINDERS = not RECOURSE_COLLECTED_STATIC
WHITENOISE_AUTOREFRESH = DEBUG
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.InMemoryStorage"},
    "staticfiles": {
        "BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"
        if RECOURSE_COLLECTED_STATIC or "collectstatic" in sys.argv
        else "django.contrib.staticfiles.storage.StaticFilesStorage"
    },
}

# The largest body that the API may take in before it says 413 itself; the JSON reader has its own bound.
DATA_UPLOAD_MAX_MEMORY_SIZE = 4 * 1024 * 1024
# Files are attached to cases one at a time, and held in memory up to the most that is taken.
DATA_UPLOAD_MAX_NUMBER_FILES = 1
FILE_UPLOAD_HANDLERS = ["console.uploads.BoundedUpload"]
# The most calls that one token may make, over all processes: far above what a worker does, below a runaway.
RECOURSE_API_CALLS_PER_MINUTE = int(number("RECOURSE_API_CALLS_PER_MINUTE", default=30_000, minimum=6))
# How many callers one process lets wait for claimable runs; each holds a thread while it waits, so this
# stays below the web server's threads. Whoever comes beyond it is answered at once.
RECOURSE_WAITERS_MAX = int(number("RECOURSE_WAITERS_MAX", default=4, minimum=0))

# --- People and sessions -----------------------------------------------------------------------------

AUTH_USER_MODEL = "console.Person"
AUTHENTICATION_BACKENDS = ["console.backend.Backend"]
LOGIN_URL = "/login/"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/login/"
PASSWORD_HASHERS = [
    "django.contrib.auth.hashers.Argon2PasswordHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {
        "NAME": "django.contrib.auth.password_validation.MinimumLengthValidator",
        "OPTIONS": {"min_length": 12},
    },
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]

# Signing in. Accounts are made by administrators, so there is nothing to sign up for or to confirm by mail.
ACCOUNT_ADAPTER = "console.sign_in.AccountAdapter"
ACCOUNT_LOGIN_METHODS = {"username"}
ACCOUNT_SIGNUP_FIELDS = ["username*", "password1*"]
ACCOUNT_EMAIL_VERIFICATION = "none"
# Of the address that an identity provider sends people back to.
ACCOUNT_DEFAULT_HTTP_PROTOCOL = "https" if flag("RECOURSE_SECURE_COOKIES", default=not DEBUG) else "http"
ACCOUNT_LOGOUT_REDIRECT_URL = LOGOUT_REDIRECT_URL
ACCOUNT_REAUTHENTICATION_TIMEOUT = 5 * 60
ACCOUNT_LOGOUT_ON_PASSWORD_CHANGE = False
# Counted in the database, so that every process counts the same. A sign-in that failed is limited by address
# and by name; an attacker who locks a name out of passwords doesn't lock it out of passkeys.
ACCOUNT_RATE_LIMITS = {
    "login": "60/m/ip",
    "login_failed": "10/m/ip,5/5m/key",
    "reauthenticate": "10/m/user",
    "change_password": "5/m/user",
}
# How many proxies of our own stand before the server and add to X-Forwarded-For.
ALLAUTH_TRUSTED_PROXY_COUNT = int(number("RECOURSE_TRUSTED_PROXIES", default=0, minimum=0))
MFA_ADAPTER = "console.sign_in.SecondFactors"
MFA_FORMS = {
    "authenticate_webauthn": "console.passkeys.SecondStepPasskey",
    "login_webauthn": "console.passkeys.SignInPasskey",
    "reauthenticate_webauthn": "console.passkeys.AccountPasskey",
}
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_PASSKEY_LOGIN_ENABLED = True
MFA_ALLOW_UNVERIFIED_EMAIL = True
MFA_RECOVERY_CODES_SHOW_ONCE = True
MFA_TOTP_ISSUER = "Recourse"
MFA_TOTP_TOLERANCE = 1  # a telephone's clock may be half a minute off
SOCIALACCOUNT_ADAPTER = "console.sign_in.Identities"
SOCIALACCOUNT_EMAIL_VERIFICATION = "none"
SOCIALACCOUNT_AUTO_SIGNUP = True
SOCIALACCOUNT_STORE_TOKENS = False
SOCIALACCOUNT_QUERY_EMAIL = True
RECOURSE_IDENTITY_PROVIDER = identity_provider()
SOCIALACCOUNT_PROVIDERS = {
    "openid_connect": {
        "OAUTH_PKCE_ENABLED": True,
        "APPS": [RECOURSE_IDENTITY_PROVIDER] if RECOURSE_IDENTITY_PROVIDER else [],
    }
}

# Off only where no TLS stands before the server, as in a demo on the loopback address.
SECURE_COOKIES = flag("RECOURSE_SECURE_COOKIES", default=not DEBUG)
SESSION_COOKIE_SECURE = SECURE_COOKIES
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_AGE = 12 * 60 * 60  # a working day: an operator logs in once a shift
SESSION_COOKIE_NAME = "__Host-recourse_session" if SECURE_COOKIES else "recourse_session"
CSRF_COOKIE_SECURE = SECURE_COOKIES
CSRF_COOKIE_HTTPONLY = True  # pages carry the token; no script reads the cookie
CSRF_COOKIE_SAMESITE = "Lax"
CSRF_FAILURE_VIEW = "console.pages.problems.csrf_failure"
CSRF_COOKIE_NAME = "__Host-recourse_csrf" if SECURE_COOKIES else "recourse_csrf"

SECURE_SSL_REDIRECT = flag("RECOURSE_SSL_REDIRECT", default=False)
# A load balancer asks over plain HTTP, from inside; it is told nothing that TLS would protect.
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$"]
# Sent over TLS alone, so it is on wherever cookies need TLS anyway: a year, as browsers' lists ask.
SECURE_HSTS_SECONDS = int(
    number("RECOURSE_HSTS_SECONDS", default=31_536_000 if SECURE_COOKIES else 0, minimum=0)
)
# Whether the hosts beside this one are TLS only is for whoever runs the whole domain to say.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]
SECURE_PROXY_SSL_HEADER = (
    ("HTTP_X_FORWARDED_PROTO", "https") if flag("RECOURSE_BEHIND_TLS_PROXY", default=False) else None
)
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF],
        "font-src": [SELF],
        "connect-src": [SELF],
        "object-src": [NONE],
        "base-uri": [NONE],
        # A form that leads to the identity provider is followed there.
        "form-action": [SELF, *identity_provider_origins()],
        "frame-ancestors": [NONE],
    }
}

# --- Telling people outside the console --------------------------------------------------------------

# Messages link to it; without it they name ids alone.
RECOURSE_PUBLIC_URL = public_url("RECOURSE_PUBLIC_URL")
_mail = mail(os.environ.get("RECOURSE_MAIL_URL", ""))
RECOURSE_MAIL_CONFIGURED = bool(_mail["HOST"])
EMAIL_BACKEND = _mail["BACKEND"]
EMAIL_HOST, EMAIL_PORT = _mail["HOST"], _mail["PORT"]
EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = _mail["HOST_USER"], _mail["HOST_PASSWORD"]
EMAIL_USE_TLS, EMAIL_USE_SSL = _mail["USE_TLS"], _mail["USE_SSL"]
# For each step of the dialogue; a server that takes longer gets the same message again.
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = SERVER_EMAIL = os.environ.get("RECOURSE_MAIL_FROM", "") or "recourse@localhost"
RECOURSE_NOTIFY_WEBHOOKS = webhooks()
# How long before a key's or a request's end people are told.
RECOURSE_NOTIFY_BEFORE_MINUTES = number("RECOURSE_NOTIFY_BEFORE_MINUTES", default=60, minimum=1)
# The most messages that one receiver gets in an hour; what happens beyond it is told in the next.
RECOURSE_NOTIFICATIONS_PER_HOUR = int(number("RECOURSE_NOTIFICATIONS_PER_HOUR", default=12, minimum=1))
RECOURSE_NOTIFY_SECONDS = number("RECOURSE_NOTIFY_SECONDS", default=5, minimum=0.05)

# --- Telling how it does -----------------------------------------------------------------------------

# What a scrape of /metrics shows; without one there are no metrics.
RECOURSE_METRICS_TOKEN = secret("RECOURSE_METRICS_TOKEN")
# Where web processes of one machine put their latencies together; without one each tells its own.
RECOURSE_METRICS_DIR = os.environ.get("RECOURSE_METRICS_DIR", "")
if RECOURSE_METRICS_DIR and not Path(RECOURSE_METRICS_DIR).is_dir():
    raise ImproperlyConfigured(f"RECOURSE_METRICS_DIR must be a folder; {RECOURSE_METRICS_DIR!r} is none.")

# --- Celery ------------------------------------------------------------------------------------------

BROKER_URL = os.environ.get("BROKER_URL", "") or "redis://127.0.0.1:6379/0"
RECOURSE_SWEEP_SECONDS = number("RECOURSE_SWEEP_SECONDS", default=5, minimum=0.05)

# The first wait between two lookups of a case; it doubles from there, with full jitter.
RECOURSE_LOOKUP_BASE_SECONDS = number("RECOURSE_LOOKUP_BASE_SECONDS", default=1.0, minimum=0.01)
# How long a process may go on by the contracts that it last read, after an administrator tightened one.
RECOURSE_PROVIDERS_CHECK_SECONDS = number("RECOURSE_PROVIDERS_CHECK_SECONDS", default=2.0, minimum=0.0)
# Who may still do what was started in their name, asked where nobody is signed in.
RECOURSE_STANDING = "console.access.standing_of"
# After this long without a worker of its pinned version, while another version works, a run says so.
RECOURSE_VERSION_SILENT_SECONDS = number("RECOURSE_VERSION_SILENT_SECONDS", default=900, minimum=1)

CELERY_BROKER_URL = BROKER_URL
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
# A worker waits for its broker for as long as it takes; whoever only sends a wake-up call doesn't: the
# sweeper makes every call again, and an operator's page must not hang on a broker that is away.
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_BROKER_CONNECTION_TIMEOUT = 2
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "max_retries": 1,
    "interval_start": 0,
    "interval_step": 0.1,
    "interval_max": 0.2,
    "socket_connect_timeout": 2,
    # A worker reads with more patience (console.celery): it has nothing else to do.
    "socket_timeout": 2,
}
RECOURSE_WORKER_SOCKET_SECONDS = 30
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
# The database is the truth; nobody reads a task's result.
CELERY_RESULT_BACKEND = None
CELERY_TASK_IGNORE_RESULT = True
# Acknowledged early: a lost task is found by the sweeper within seconds, whereas the broker's own
# redelivery is slow, or doubles a task that merely takes long.
CELERY_TASK_ACKS_LATE = False
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
# No task outlives one lookup with all its time limits by much.
CELERY_TASK_SOFT_TIME_LIMIT = 60
CELERY_TASK_TIME_LIMIT = 90
CELERY_TASK_DEFAULT_QUEUE = os.environ.get("RECOURSE_QUEUE", "") or "recourse"
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_REDIRECT_STDOUTS = False
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = False
CELERY_ENABLE_UTC = True
CELERY_TIMEZONE = "UTC"
# Entries for beat: name → task and period. Two beats at once do no harm; each entry is safe to repeat.
BEAT: dict[str, dict[str, Any]] = {
    "sweep": {
        "task": "console.tasks.sweep",
        "schedule": RECOURSE_SWEEP_SECONDS,
        # A wake-up call older than the next one is noise.
        "options": {"expires": max(RECOURSE_SWEEP_SECONDS, 1.0)},
    },
    # What the effect history is narrowed by; the newest entries are found without.
    "history": {
        "task": "console.tasks.file_history",
        "schedule": max(RECOURSE_SWEEP_SECONDS, 5.0),
        "options": {"expires": max(RECOURSE_SWEEP_SECONDS, 5.0)},
    },
    # Shows that beat, broker and workers work together.
    "pulse": {"task": "console.tasks.pulse", "schedule": 10.0, "options": {"expires": 10.0}},
    # What /metrics tells of the audit log.
    "count": {
        "task": "console.tasks.count_entries",
        "schedule": max(RECOURSE_SWEEP_SECONDS, 5.0),
        "options": {"expires": max(RECOURSE_SWEEP_SECONDS, 5.0)},
    },
    # What people are told outside the console.
    "notify": {
        "task": "console.tasks.notify",
        "schedule": RECOURSE_NOTIFY_SECONDS,
        "options": {"expires": max(RECOURSE_NOTIFY_SECONDS, 1.0)},
    },
    # Exports of it that somebody has asked for.
    "exports": {
        "task": "console.tasks.make_exports",
        "schedule": max(RECOURSE_SWEEP_SECONDS, 5.0),
        "options": {"expires": max(RECOURSE_SWEEP_SECONDS, 5.0)},
    },
    # Names for search by a part of them; whole ones are found without.
    "search_terms": {
        "task": "console.tasks.index_search_terms",
        "schedule": max(RECOURSE_SWEEP_SECONDS, 5.0),
        "options": {"expires": max(RECOURSE_SWEEP_SECONDS, 5.0)},
    },
}

# --- Logs --------------------------------------------------------------------------------------------

LOG_LEVEL = os.environ.get("RECOURSE_LOG_LEVEL", "").upper() or "INFO"
LOG_FORMAT = os.environ.get("RECOURSE_LOG_FORMAT", "") or "json"
if LOG_FORMAT not in {"json", "text"}:
    raise ImproperlyConfigured(f"RECOURSE_LOG_FORMAT must be json or text, not {LOG_FORMAT!r}.")
if LOG_LEVEL not in logging.getLevelNamesMapping():
    raise ImproperlyConfigured(f"RECOURSE_LOG_LEVEL must be a level such as INFO, not {LOG_LEVEL!r}.")

_before_rendering: list[Any] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
    structlog.processors.StackInfoRenderer(),
]
_redacted = Redacted(
    [
        SECRET_KEY,
        RECOURSE_KEY_SECRET,
        str(DATABASES["default"]["PASSWORD"]),
        urlsplit(BROKER_URL).password or "",
        EMAIL_HOST_PASSWORD,
        RECOURSE_METRICS_TOKEN,
        *(one.url for one in RECOURSE_NOTIFY_WEBHOOKS.values()),
    ]
)
_renderer: list[Any] = (
    [tracebacks_without_locals(), _redacted, structlog.processors.JSONRenderer()]
    if LOG_FORMAT == "json"
    else [
        structlog.processors.format_exc_info,
        _redacted,
        structlog.processors.KeyValueRenderer(key_order=["at", "level", "logger", "event"]),
    ]
)
structlog.configure(
    processors=[
        structlog.stdlib.filter_by_level,
        *_before_rendering,
        structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
    ],
    logger_factory=structlog.stdlib.LoggerFactory(),
    wrapper_class=structlog.stdlib.BoundLogger,
    cache_logger_on_first_use=True,
)
LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "structured": {
            "()": structlog.stdlib.ProcessorFormatter,
            "foreign_pre_chain": _before_rendering,
            "processors": [structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_renderer],
        }
    },
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "structured"}},
    "root": {"handlers": ["stderr"], "level": LOG_LEVEL},
    "loggers": {
        # A request's URL may carry what a provider considers private; its outcome is evidence anyway.
        "httpx": {"level": "WARNING"},
        "httpcore": {"level": "WARNING"},
    },
}
