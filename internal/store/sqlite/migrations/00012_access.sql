-- What a key is narrowed to, and when it was last used; whether the organisation
-- is paused.

-- +goose Up
ALTER TABLE api_key ADD COLUMN created_by TEXT NOT NULL DEFAULT '';
ALTER TABLE api_key ADD COLUMN expires_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE api_key ADD COLUMN used_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE api_key ADD COLUMN owner TEXT NOT NULL DEFAULT '';
ALTER TABLE api_key ADD COLUMN actions TEXT NOT NULL DEFAULT ''; -- a list, '' for all of its kind

CREATE TABLE organisation (
    name       TEXT PRIMARY KEY, -- one row, 'organisation'
    paused     BIGINT NOT NULL,
    reason     TEXT NOT NULL,
    actor      TEXT NOT NULL,
    changed_at BIGINT NOT NULL
);
