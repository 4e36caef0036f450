-- What was known of a worker to one manager only, and is known to all now.

-- +goose Up
ALTER TABLE worker ADD COLUMN session TEXT NOT NULL DEFAULT '';
ALTER TABLE worker ADD COLUMN manager TEXT NOT NULL DEFAULT '';
ALTER TABLE worker ADD COLUMN proofs TEXT NOT NULL DEFAULT '';
ALTER TABLE worker ADD COLUMN paused TEXT NOT NULL DEFAULT '';
