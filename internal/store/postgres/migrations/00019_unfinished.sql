-- What managers have begun and not answered yet. body is the whole of it, as
-- JSON.

-- +goose Up
CREATE TABLE unfinished (
    id         TEXT COLLATE "C" PRIMARY KEY,
    created_at BIGINT NOT NULL,
    body       TEXT COLLATE "C" NOT NULL
);
