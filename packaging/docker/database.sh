#!/bin/sh
# Runs once, when the database's volume is empty. topicmill's user owns its database and has no power over the server:
# `topicmill sql` and `topicmill serve` refuse a superuser.
set -eu
psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --set password="$(cat /run/secrets/database_password)" \
    --username "$POSTGRES_USER" --dbname postgres <<'END'
CREATE ROLE topicmill LOGIN PASSWORD :'password';
CREATE DATABASE topicmill OWNER topicmill ENCODING 'UTF8' LOCALE 'C.UTF-8' TEMPLATE template0;
END
