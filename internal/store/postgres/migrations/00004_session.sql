-- What was known of a worker to one manager only, and is known to all now.

-- +goose Up
ALTER TABLE worker ADD COLUMN session TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE worker ADD COLUMN manager TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE worker ADD COLUMN proofs TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE worker ADD COLUMN paused TEXT COLLATE "C" NOT NULL DEFAULT '';
