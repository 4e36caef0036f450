-- Files of sessions, which outlast their sandboxes: a row for each version of a
-- path. What a sandbox and its session last had in common is remembered, so that
-- a deletion on one side is told from a creation on the other.

-- +goose Up
CREATE TABLE file (
    session     TEXT NOT NULL,
    path        TEXT NOT NULL,
    version     BIGINT NOT NULL,
    newest      BIGINT NOT NULL, -- 1 for the version that the file is
    size        BIGINT NOT NULL,
    sha256      TEXT NOT NULL, -- empty where it was deleted
    mode        BIGINT NOT NULL,
    modified_at BIGINT NOT NULL,
    stored_at   BIGINT NOT NULL,
    deleted     BIGINT NOT NULL,
    origin      TEXT NOT NULL,
    lost        BIGINT NOT NULL,
    PRIMARY KEY (session, path, version)
);
CREATE UNIQUE INDEX file_newest ON file (session, path) WHERE newest = 1;
CREATE INDEX file_old ON file (session, stored_at) WHERE newest = 0;
CREATE INDEX file_sha256 ON file (sha256);

CREATE TABLE file_synced (
    sandbox     TEXT NOT NULL,
    path        TEXT NOT NULL,
    sha256      TEXT NOT NULL,
    mode        BIGINT NOT NULL,
    size        BIGINT NOT NULL,
    modified_at BIGINT NOT NULL,
    synced_at   BIGINT NOT NULL,
    PRIMARY KEY (sandbox, path)
);
