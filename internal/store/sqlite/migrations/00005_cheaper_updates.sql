-- A list of more than two values in the condition of an index costs a table of
-- its own, twice for each update of a row. The same condition in other words
-- costs nothing.

-- +goose Up
DROP INDEX job_open;
CREATE INDEX job_open ON job (state, owner, created_at)
    WHERE (state = 'QUEUED' OR state = 'ASSIGNED' OR state = 'IN_PROGRESS' OR state = 'SUBMITTED' OR state = 'VALIDATING') AND root = 0;
