-- Times are microseconds since 1970 in UTC, 0 for none. JSON is kept as text,
-- '' for none. An INTEGER PRIMARY KEY is the tail of every index of its table,
-- so an index on one column also gives that column's rows in order of seq.

-- +goose Up
CREATE TABLE job (
    seq            INTEGER PRIMARY KEY AUTOINCREMENT,
    id             TEXT NOT NULL UNIQUE,
    root_id        TEXT NOT NULL,
    root           BIGINT NOT NULL, -- 1 if it is one
    owner          TEXT NOT NULL,
    project_id     BIGINT NOT NULL,
    session_id     TEXT NOT NULL,
    key            TEXT NOT NULL,
    title          TEXT NOT NULL,
    role           TEXT NOT NULL,
    type           TEXT NOT NULL,
    priority       BIGINT NOT NULL,
    depends_on     TEXT NOT NULL,
    timeout_ns     BIGINT NOT NULL,
    max_retries    BIGINT NOT NULL,
    validate       BIGINT NOT NULL,
    state          TEXT NOT NULL,
    outcome        TEXT NOT NULL,
    assigned_model TEXT NOT NULL,
    waiting        BIGINT NOT NULL,
    open           BIGINT NOT NULL,
    failures       BIGINT NOT NULL,
    losses         BIGINT NOT NULL,
    attempt        BIGINT NOT NULL,
    worker         TEXT NOT NULL,
    submitter      TEXT NOT NULL,
    fence          BIGINT NOT NULL,
    lease_until    BIGINT NOT NULL,
    ready_at       BIGINT NOT NULL,
    created_at     BIGINT NOT NULL,
    started_at     BIGINT NOT NULL,
    completed_at   BIGINT NOT NULL,
    updated_at     BIGINT NOT NULL,
    reported       BIGINT NOT NULL DEFAULT 0,
    details        TEXT NOT NULL,
    payload        TEXT NOT NULL
);

-- What the queue asks all the time is answered from indexes over open jobs
-- only, so that ended jobs cost nothing.
CREATE INDEX job_due ON job (priority DESC, seq, ready_at) WHERE state = 'QUEUED' AND waiting = 0;
CREATE INDEX job_ready ON job (ready_at) WHERE state = 'QUEUED' AND waiting = 0;
CREATE INDEX job_leasable ON job (assigned_model, priority DESC, seq) WHERE state = 'ASSIGNED';
CREATE INDEX job_lease ON job (lease_until) WHERE state IN ('IN_PROGRESS', 'VALIDATING') AND root = 0;
CREATE INDEX job_busy ON job (project_id, state) WHERE state IN ('ASSIGNED', 'IN_PROGRESS') AND root = 0;
CREATE INDEX job_open ON job (state, owner, created_at)
    WHERE state IN ('QUEUED', 'ASSIGNED', 'IN_PROGRESS', 'SUBMITTED', 'VALIDATING') AND root = 0;

-- What people list. A plain index on state would also fit the queries above,
-- and the planner would take it for them: hence the sum.
CREATE INDEX job_state ON job (state || '');
CREATE INDEX job_root ON job (root_id);
CREATE INDEX job_owner ON job (owner);
CREATE INDEX job_project ON job (project_id);

CREATE TABLE dependency (
    on_id   TEXT NOT NULL,
    job_seq BIGINT NOT NULL,
    PRIMARY KEY (on_id, job_seq)
) WITHOUT ROWID;

-- How many jobs have ended, roots aside. Counting them in the job table would
-- cost more with each job that ever ended. Whoever writes a job keeps it; a
-- trigger would make every update of a job twice as dear.
CREATE TABLE job_ended (
    owner   TEXT NOT NULL,
    state   TEXT NOT NULL,
    outcome TEXT NOT NULL,
    jobs    BIGINT NOT NULL,
    PRIMARY KEY (owner, state, outcome)
) WITHOUT ROWID;

CREATE TABLE event (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    type       TEXT NOT NULL,
    version    BIGINT NOT NULL,
    entity     TEXT NOT NULL,
    entity_id  TEXT NOT NULL,
    job_id     TEXT NOT NULL,
    root_id    TEXT NOT NULL,
    project_id BIGINT NOT NULL,
    actor      TEXT NOT NULL,
    owner      TEXT NOT NULL,
    at         BIGINT NOT NULL,
    data       TEXT NOT NULL
);

-- Only what names few events of the history has an index. Owner, project and
-- type are checked row by row from the cursor on. Nearly every event is about a
-- job, which has its index, so the entities' holds only the others.
CREATE INDEX event_job ON event (job_id) WHERE job_id <> '';
CREATE INDEX event_root ON event (root_id) WHERE root_id <> '';
CREATE INDEX event_entity ON event (entity_id) WHERE entity_id <> job_id;

CREATE TABLE worker (
    id            TEXT PRIMARY KEY,
    identity      TEXT NOT NULL,
    incarnation   TEXT NOT NULL,
    role          TEXT NOT NULL,
    models        TEXT NOT NULL,
    drivers       TEXT NOT NULL,
    slots         BIGINT NOT NULL,
    version       TEXT NOT NULL,
    connected     BIGINT NOT NULL,
    registered_at BIGINT NOT NULL,
    seen_at       BIGINT NOT NULL
);

-- A record and the list of what its try left, as JSON: they are written once
-- and read whole.
CREATE TABLE record (
    job_id    TEXT NOT NULL,
    attempt   BIGINT NOT NULL,
    body      TEXT NOT NULL,
    artifacts TEXT NOT NULL,
    PRIMARY KEY (job_id, attempt)
);

CREATE TABLE api_key (
    id         TEXT PRIMARY KEY,
    kind       TEXT NOT NULL,
    name       TEXT NOT NULL,
    hash       TEXT NOT NULL UNIQUE,
    created_at BIGINT NOT NULL,
    revoked_at BIGINT NOT NULL
);

CREATE TABLE leader (
    name       TEXT PRIMARY KEY,
    holder     TEXT NOT NULL,
    fence      BIGINT NOT NULL,
    term_until BIGINT NOT NULL
);

CREATE TABLE reply (
    owner   TEXT NOT NULL,
    key     TEXT NOT NULL,
    request TEXT NOT NULL,
    body    TEXT NOT NULL,
    at      BIGINT NOT NULL,
    PRIMARY KEY (owner, key)
);
CREATE INDEX reply_at ON reply (at);
