"""Make the audit log append-only for everybody, the owner included.

The application's role has no UPDATE, DELETE or TRUNCATE on the table (`manage.py migrate` sees to that);
these triggers stand behind the privileges and refuse the owner too.
"""

from django.db import migrations

REFUSE = """
CREATE FUNCTION runs_audit_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit log is append-only: % on % is refused', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'insufficient_privilege';
END $$;

CREATE TRIGGER runs_audit_no_change BEFORE UPDATE OR DELETE ON runs_auditleaf
    FOR EACH ROW EXECUTE FUNCTION runs_audit_refuse();
CREATE TRIGGER runs_audit_no_truncate BEFORE TRUNCATE ON runs_auditleaf
    FOR EACH STATEMENT EXECUTE FUNCTION runs_audit_refuse();
"""

ALLOW = """
DROP TRIGGER runs_audit_no_truncate ON runs_auditleaf;
DROP TRIGGER runs_audit_no_change ON runs_auditleaf;
DROP FUNCTION runs_audit_refuse();
"""


class Migration(migrations.Migration):
    dependencies = [("runs", "0001_initial")]

    operations = [migrations.RunSQL(sql=REFUSE, reverse_sql=ALLOW)]
