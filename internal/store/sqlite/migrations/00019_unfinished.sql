-- What managers have begun and not answered yet. body is the whole of it, as
-- JSON.

-- +goose Up
CREATE TABLE unfinished (
    id         TEXT PRIMARY KEY,
    created_at BIGINT NOT NULL,
    body       TEXT NOT NULL
);
