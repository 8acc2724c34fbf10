-- The roles and the database of a deployment. Run once by an administrator of the server:
--
--   psql -v owner_password='…' -v app_password='…' -f docs/roles.sql postgres
--
-- recourse_owner owns the schema and migrates it (DATABASE_OWNER_URL). recourse is how web and Celery
-- processes log in (DATABASE_URL); all it may do, it may as a member of recourse_app, and `migrate` grants
-- that group what it needs after every migration.
\set ON_ERROR_STOP on
CREATE ROLE recourse_app NOLOGIN;
CREATE ROLE recourse_owner LOGIN PASSWORD :'owner_password';
CREATE ROLE recourse LOGIN PASSWORD :'app_password' IN ROLE recourse_app;
CREATE DATABASE recourse OWNER recourse_owner ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C.UTF-8' TEMPLATE template0;
