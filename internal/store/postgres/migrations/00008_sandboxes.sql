-- Sandboxes that are kept, the execs in them, and their snapshots. The ids of
-- the first sort by time; what nobody asks for by itself is in body, as JSON.

-- +goose Up
CREATE TABLE sandbox (
    id           TEXT COLLATE "C" PRIMARY KEY,
    owner        TEXT COLLATE "C" NOT NULL,
    name         TEXT COLLATE "C" NOT NULL,
    session      TEXT COLLATE "C" NOT NULL,
    app          TEXT COLLATE "C" NOT NULL,
    state        TEXT COLLATE "C" NOT NULL,
    worker       TEXT COLLATE "C" NOT NULL,
    created_at   BIGINT NOT NULL,
    started_at   BIGINT NOT NULL,
    ended_at     BIGINT NOT NULL,
    due_at       BIGINT NOT NULL, -- when its time is over; 0 is never
    cpu_ns       BIGINT NOT NULL, -- that it has used
    memory_bytes BIGINT NOT NULL, -- that it may use
    body         TEXT COLLATE "C" NOT NULL
);

-- Two open sandboxes of an owner do not have the same name.
CREATE UNIQUE INDEX sandbox_name ON sandbox (owner, name) WHERE ended_at = 0 AND name <> '';
CREATE INDEX sandbox_owner ON sandbox (owner, id);
CREATE INDEX sandbox_open ON sandbox (worker, id) WHERE ended_at = 0;
CREATE INDEX sandbox_due ON sandbox (due_at) WHERE ended_at = 0 AND due_at > 0;
CREATE INDEX sandbox_ended ON sandbox (ended_at) WHERE ended_at > 0;

CREATE TABLE sandbox_label (
    sandbox_id TEXT COLLATE "C" NOT NULL,
    label      TEXT COLLATE "C" NOT NULL,
    value      TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (label, value, sandbox_id)
);
CREATE INDEX sandbox_label_of ON sandbox_label (sandbox_id);

CREATE TABLE exec (
    id         TEXT COLLATE "C" PRIMARY KEY,
    sandbox_id TEXT COLLATE "C" NOT NULL,
    owner      TEXT COLLATE "C" NOT NULL,
    state      TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    ended_at   BIGINT NOT NULL,
    dropped    BIGINT NOT NULL DEFAULT 0, -- 1 once its output is gone
    body       TEXT COLLATE "C" NOT NULL,
    blobs      BYTEA NOT NULL DEFAULT '' -- its output, where that is small
);
CREATE INDEX exec_sandbox ON exec (sandbox_id, id);
CREATE INDEX exec_open ON exec (sandbox_id, id) WHERE ended_at = 0;
CREATE INDEX exec_ended ON exec (ended_at) WHERE ended_at > 0;

CREATE TABLE sandbox_snapshot (
    id         TEXT COLLATE "C" PRIMARY KEY,
    sandbox_id TEXT COLLATE "C" NOT NULL,
    owner      TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    body       TEXT COLLATE "C" NOT NULL
);
CREATE INDEX sandbox_snapshot_of ON sandbox_snapshot (sandbox_id, id);
CREATE INDEX sandbox_snapshot_owner ON sandbox_snapshot (owner, id);
