-- From which place in a trace a job was submitted, so that its worker goes on
-- there.

-- +goose Up
ALTER TABLE job ADD COLUMN trace TEXT COLLATE "C" NOT NULL DEFAULT '';
