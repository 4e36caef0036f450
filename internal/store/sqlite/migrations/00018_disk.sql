-- How many bytes of files were written in a sandbox, as last measured.

-- +goose Up
ALTER TABLE sandbox ADD COLUMN disk_bytes BIGINT NOT NULL DEFAULT 0;
