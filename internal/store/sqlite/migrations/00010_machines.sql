-- Machines, their apps, and sessions. What nobody asks for by itself is in body,
-- as JSON.

-- +goose Up
CREATE TABLE app (
    owner      TEXT NOT NULL,
    name       TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (owner, name)
);

CREATE TABLE machine (
    id           TEXT PRIMARY KEY,
    owner        TEXT NOT NULL,
    app          TEXT NOT NULL,
    name         TEXT NOT NULL,
    region       TEXT NOT NULL,
    state        TEXT NOT NULL,
    wanted       BIGINT NOT NULL, -- 1 while it is to be started
    sandbox_id   TEXT NOT NULL,
    created_at   BIGINT NOT NULL,
    updated_at   BIGINT NOT NULL,
    destroyed_at BIGINT NOT NULL,
    body         TEXT NOT NULL
);

-- Two open machines of an app do not have the same name.
CREATE UNIQUE INDEX machine_name ON machine (owner, app, name) WHERE destroyed_at = 0;
CREATE INDEX machine_app ON machine (app, created_at);
CREATE INDEX machine_sandbox ON machine (sandbox_id) WHERE sandbox_id <> '' AND destroyed_at = 0;
CREATE INDEX machine_passing ON machine (updated_at) WHERE destroyed_at = 0 AND (state IN ('starting', 'suspending', 'stopping', 'replacing', 'destroying') OR state = 'created' AND wanted = 1);
CREATE INDEX machine_destroyed ON machine (destroyed_at) WHERE destroyed_at > 0;

-- The execs that are the processes of a machine.
CREATE TABLE machine_root (
    machine_id TEXT NOT NULL,
    exec_id    TEXT NOT NULL,
    PRIMARY KEY (machine_id, exec_id)
);

CREATE TABLE session (
    owner      TEXT NOT NULL,
    id         TEXT NOT NULL,
    project    TEXT NOT NULL,
    state      TEXT NOT NULL,
    sandbox_id TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    due_at     BIGINT NOT NULL, -- when its time is over; 0 is never
    ended_at   BIGINT NOT NULL,
    body       TEXT NOT NULL,
    PRIMARY KEY (owner, id)
);
CREATE INDEX session_id ON session (id);
CREATE INDEX session_created ON session (created_at);
CREATE INDEX session_due ON session (due_at) WHERE ended_at = 0 AND due_at > 0;
CREATE INDEX session_ended ON session (ended_at) WHERE ended_at > 0;
