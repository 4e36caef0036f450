-- The number of the last event that was forgotten: who asks for what came before
-- it is told that there is a gap.

-- +goose Up
CREATE TABLE history (
    name TEXT COLLATE "C" PRIMARY KEY,
    seq  BIGINT NOT NULL
);

-- Plans by when they ended, so that the oldest are found without the others.
CREATE INDEX job_done ON job (completed_at) WHERE root = 1 AND completed_at > 0;

-- Which of the small blobs of a record were dropped, so that nobody looks for
-- them again and again.
ALTER TABLE record ADD COLUMN dropped BIGINT NOT NULL DEFAULT 0;
