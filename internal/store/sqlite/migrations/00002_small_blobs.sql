-- Small blobs lie beside the record that names them: they are written by the
-- transaction that writes the record, and need no file and no sync of their own.

-- +goose Up
ALTER TABLE record ADD COLUMN blobs BLOB NOT NULL DEFAULT x'';
