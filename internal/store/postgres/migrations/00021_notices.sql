-- What hooks of triggers are still to be told.

-- +goose Up
CREATE TABLE fleet_notice (
    id        TEXT COLLATE "C" PRIMARY KEY,
    firing_id TEXT COLLATE "C" NOT NULL,
    event     TEXT COLLATE "C" NOT NULL,
    url       TEXT COLLATE "C" NOT NULL,
    body      TEXT COLLATE "C" NOT NULL,
    tries     BIGINT NOT NULL,
    next_at   BIGINT NOT NULL
);
CREATE INDEX fleet_notice_due ON fleet_notice (next_at, id);
