-- Rules that watch the fleet, who is in breach of them, and what they did. body
-- is the whole of a trigger or a firing, as JSON.

-- +goose Up
CREATE TABLE fleet_trigger (
    id         TEXT COLLATE "C" PRIMARY KEY,
    created_at BIGINT NOT NULL,
    body       TEXT COLLATE "C" NOT NULL
);

CREATE TABLE fleet_breach (
    trigger_id TEXT COLLATE "C" NOT NULL,
    worker_id  TEXT COLLATE "C" NOT NULL,
    since      BIGINT NOT NULL,
    fired_at   BIGINT NOT NULL, -- 0 while it has not fired
    blocked_at BIGINT NOT NULL, -- 0 while no cooldown kept it from firing
    PRIMARY KEY (trigger_id, worker_id)
);
CREATE INDEX fleet_breach_worker ON fleet_breach (worker_id);

CREATE TABLE fleet_firing (
    id         TEXT COLLATE "C" PRIMARY KEY,
    trigger_id TEXT COLLATE "C" NOT NULL,
    worker_id  TEXT COLLATE "C" NOT NULL,
    owner      TEXT COLLATE "C" NOT NULL,
    outcome    TEXT COLLATE "C" NOT NULL, -- '' while it is under way
    fired_at   BIGINT NOT NULL,
    body       TEXT COLLATE "C" NOT NULL
);
CREATE INDEX fleet_firing_worker ON fleet_firing (worker_id, id);
CREATE INDEX fleet_firing_open ON fleet_firing (id) WHERE outcome = '';

-- By which the commands of the fleet are found among all.
CREATE INDEX fleet_worker_sandbox ON fleet_worker (sandbox_id) WHERE state = 'running';
