-- The fleet: contracts, the keys of its papers, and its workers from their paper
-- to their end. What nobody asks for by itself is in paper and body, as JSON.

-- +goose Up
CREATE TABLE contract (
    name TEXT PRIMARY KEY,
    body TEXT NOT NULL
);

CREATE TABLE manifest_key (
    id         TEXT PRIMARY KEY,
    public     TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    revoked_at BIGINT NOT NULL
);

CREATE TABLE fleet_worker (
    id           TEXT PRIMARY KEY,
    contract     TEXT NOT NULL,
    owner        TEXT NOT NULL,
    parent_id    TEXT NOT NULL,
    depth        BIGINT NOT NULL,
    issued_at    BIGINT NOT NULL,
    state        TEXT NOT NULL,
    sandbox_id   TEXT NOT NULL,
    quarantined  BIGINT NOT NULL,
    heartbeat_at BIGINT NOT NULL,
    due_at       BIGINT NOT NULL, -- when its time is over; 0 is never
    updated_at   BIGINT NOT NULL,
    ended_at     BIGINT NOT NULL,
    paper        TEXT NOT NULL,
    body         TEXT NOT NULL
);
CREATE INDEX fleet_worker_contract ON fleet_worker (contract, state) WHERE state <> 'ended';
CREATE INDEX fleet_worker_issued ON fleet_worker (issued_at);
CREATE INDEX fleet_worker_parent ON fleet_worker (parent_id) WHERE parent_id <> '';
CREATE INDEX fleet_worker_heartbeat ON fleet_worker (heartbeat_at) WHERE state = 'running';
CREATE INDEX fleet_worker_due ON fleet_worker (due_at) WHERE due_at > 0;
CREATE INDEX fleet_worker_passing ON fleet_worker (updated_at) WHERE state IN ('launching', 'ending');
CREATE INDEX fleet_worker_ended ON fleet_worker (ended_at) WHERE ended_at > 0;
