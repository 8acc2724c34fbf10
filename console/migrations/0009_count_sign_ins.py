"""The tables that sign-ins and calls are counted in: a cache, as Django's `createcachetable` would make it,
and how many calls each token was given in its window.

Unlogged: after a crash the counts begin anew, and no count is worth a wait for the disk.
"""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("console", "0008_export_the_effect_history")]

    operations = [
        migrations.RunSQL(
            sql="""
                CREATE UNLOGGED TABLE console_cache (
                    cache_key varchar(255) NOT NULL PRIMARY KEY,
                    value text NOT NULL,
                    expires timestamp with time zone NOT NULL
                );
                CREATE INDEX console_cache_expires ON console_cache (expires);
                CREATE UNLOGGED TABLE console_tokencalls (
                    token_id varchar(40) NOT NULL PRIMARY KEY,
                    window_number bigint NOT NULL,
                    given integer NOT NULL CHECK (given > 0)
                ) WITH (fillfactor = 50);
            """,
            reverse_sql="DROP TABLE console_tokencalls; DROP TABLE console_cache",
        )
    ]
