-- +goose Up
-- A record with its small blobs stays in one row, as it is: to compress it, or
-- to keep a part of it elsewhere, costs more than the room that it saves.
ALTER TABLE record ALTER COLUMN blobs SET STORAGE EXTERNAL;
ALTER TABLE record SET (toast_tuple_target = 8160);
