#!/bin/sh
# Runs only once, when the database volume is empty. The topicmill role owns its database but is not a superuser,
# because `topicmill sql` rejects superusers.
set -eu
psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --set password="$(cat /run/secrets/database_password)" \
    --username "$POSTGRES_USER" --dbname postgres <<'END'
CREATE ROLE topicmill LOGIN PASSWORD :'password';
CREATE DATABASE topicmill OWNER topicmill ENCODING 'UTF8' LOCALE 'C.UTF-8' TEMPLATE template0;
END
