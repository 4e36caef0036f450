-- What hooks of triggers are still to be told.

-- +goose Up
CREATE TABLE fleet_notice (
    id        TEXT PRIMARY KEY,
    firing_id TEXT NOT NULL,
    event     TEXT NOT NULL,
    url       TEXT NOT NULL,
    body      TEXT NOT NULL,
    tries     BIGINT NOT NULL,
    next_at   BIGINT NOT NULL
);
CREATE INDEX fleet_notice_due ON fleet_notice (next_at, id);
