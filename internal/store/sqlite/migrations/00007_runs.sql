-- Runs of code. Their ids are UUIDv7, so that order by id is order of time, and
-- no number of their own is needed.

-- +goose Up
CREATE TABLE run (
    id          TEXT PRIMARY KEY,
    owner       TEXT NOT NULL,
    state       TEXT NOT NULL,
    language    TEXT NOT NULL,
    code_sha256 TEXT NOT NULL,
    timeout_ns  BIGINT NOT NULL,
    sync        BIGINT NOT NULL, -- 1 if somebody waits on a connection
    manager     TEXT NOT NULL,
    fence       BIGINT NOT NULL,
    attempt     BIGINT NOT NULL,
    worker      TEXT NOT NULL,
    verdict     TEXT NOT NULL,
    reason      TEXT NOT NULL,
    webhook     TEXT NOT NULL,
    trace       TEXT NOT NULL,
    created_at  BIGINT NOT NULL,
    started_at  BIGINT NOT NULL,
    ended_at    BIGINT NOT NULL,
    dropped     BIGINT NOT NULL DEFAULT 0, -- 1 once its small blobs are gone
    record      TEXT NOT NULL DEFAULT '', -- JSON, written at the end
    request     TEXT NOT NULL, -- JSON, '' from the end on
    blobs       BLOB NOT NULL DEFAULT x'' -- the small ones that the record names
);

-- What is asked all the time is answered from the open runs alone.
CREATE INDEX run_open ON run (id, manager, state, created_at) WHERE ended_at = 0;
CREATE INDEX run_owner ON run (owner, id);
CREATE INDEX run_ended ON run (ended_at) WHERE ended_at > 0;

-- Which managers are alive, and so have the runs that name them.
CREATE TABLE run_manager (
    manager     TEXT PRIMARY KEY,
    alive_until BIGINT NOT NULL
);

-- Who is still to be told of the end of a run.
CREATE TABLE run_hook (
    run_id  TEXT PRIMARY KEY,
    url     TEXT NOT NULL,
    tries   BIGINT NOT NULL,
    next_at BIGINT NOT NULL
);
CREATE INDEX run_hook_due ON run_hook (next_at);
