-- What a key is narrowed to, and when it was last used; whether the organisation
-- is paused.

-- +goose Up
ALTER TABLE api_key ADD COLUMN created_by TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE api_key ADD COLUMN expires_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE api_key ADD COLUMN used_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE api_key ADD COLUMN owner TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE api_key ADD COLUMN actions TEXT COLLATE "C" NOT NULL DEFAULT ''; -- a list, '' for all of its kind

CREATE TABLE organisation (
    name       TEXT COLLATE "C" PRIMARY KEY, -- one row, 'organisation'
    paused     BIGINT NOT NULL,
    reason     TEXT COLLATE "C" NOT NULL,
    actor      TEXT COLLATE "C" NOT NULL,
    changed_at BIGINT NOT NULL
);
