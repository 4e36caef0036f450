-- The project that a key is narrowed to, and that a run belongs to; 0 is none.

-- +goose Up
ALTER TABLE api_key ADD COLUMN project_id BIGINT NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN project_id BIGINT NOT NULL DEFAULT 0;
-- Most runs belong to none, and cost nothing more.
CREATE INDEX run_project ON run (project_id, id) WHERE project_id > 0;
