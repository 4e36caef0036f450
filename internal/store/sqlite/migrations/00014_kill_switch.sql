-- Switches that stop everything, or a part of it. changed counts the changes of
-- all of them: the highest is the newest. body is the switch, as JSON.

-- +goose Up
CREATE TABLE kill_switch (
    id             TEXT PRIMARY KEY,
    changed        BIGINT NOT NULL,
    level          TEXT NOT NULL,
    scope          TEXT NOT NULL,
    body           TEXT NOT NULL,
    engaged_at     BIGINT NOT NULL,
    released_at    BIGINT NOT NULL, -- 0 while it is engaged
    released_by    TEXT NOT NULL,
    release_reason TEXT NOT NULL
);

CREATE INDEX kill_switch_engaged ON kill_switch (engaged_at) WHERE released_at = 0;
CREATE INDEX kill_switch_changed ON kill_switch (changed);
