"""Hold whoever answers a request for approval to the human being behind their account, in the database too.

The request's own check compares what is written on it. This trigger asks the accounts themselves, so that
nobody's statement can make one human being two by writing another name: who asks and who answers must be
accounts, with the principals that they have, and these must differ.
"""

from django.db import migrations

GUARD = """
CREATE FUNCTION console_principal_of(actor text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT principal FROM console_person WHERE id = CASE
        WHEN actor ~ '^person:[0-9]{1,18}$' THEN substr(actor, 8)::bigint
    END
$$;

CREATE FUNCTION console_approvals_by_two() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' AND
       console_principal_of(NEW.requester) IS DISTINCT FROM NEW.requester_principal::text
    THEN
        RAISE EXCEPTION 'approval %: the requester isn''t that human being', NEW.id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'approval_requester_is_themselves';
    END IF;
    IF NEW.answerer <> '' AND (TG_OP = 'INSERT' OR OLD.answerer = '') THEN
        IF console_principal_of(NEW.answerer) IS DISTINCT FROM NEW.answerer_principal::text THEN
            RAISE EXCEPTION 'approval %: the answer isn''t by that human being', NEW.id
                USING ERRCODE = 'check_violation', CONSTRAINT = 'approval_answerer_is_themselves';
        END IF;
        -- As it is now: two accounts may have become known as one human being since the request.
        IF console_principal_of(NEW.requester) = console_principal_of(NEW.answerer) THEN
            RAISE EXCEPTION 'approval %: one human being asks and answers', NEW.id
                USING ERRCODE = 'check_violation', CONSTRAINT = 'approval_by_two_human_beings';
        END IF;
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER console_approvalrequest_by_two
    BEFORE INSERT OR UPDATE ON reconciliation_approvalrequest
    FOR EACH ROW EXECUTE FUNCTION console_approvals_by_two();
"""

UNGUARD = """
DROP TRIGGER console_approvalrequest_by_two ON reconciliation_approvalrequest;
DROP FUNCTION console_approvals_by_two();
DROP FUNCTION console_principal_of(text);
"""


class Migration(migrations.Migration):
    dependencies = [
        ("console", "0009_count_sign_ins"),
        ("reconciliation", "0013_keep_requests_for_approval"),
    ]

    operations = [migrations.RunSQL(sql=GUARD, reverse_sql=UNGUARD)]
