-- Times are microseconds since 1970 in UTC, 0 for none. JSON is kept as text,
-- '' for none. Text is compared byte by byte, as SQLite does.

-- +goose Up

-- The numbers that were given out last. Whoever writes holds this row from the
-- beginning of its transaction to the end: so there is one writer at a time,
-- and a number is seen only after all below it.
CREATE TABLE last_number (
    only_row BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (only_row),
    job      BIGINT NOT NULL,
    event    BIGINT NOT NULL
) WITH (fillfactor = 10);
INSERT INTO last_number (job, event) VALUES (0, 0);

CREATE TABLE job (
    seq            BIGINT PRIMARY KEY,
    id             TEXT COLLATE "C" NOT NULL UNIQUE,
    root_id        TEXT COLLATE "C" NOT NULL,
    root           BIGINT NOT NULL, -- 1 if it is one
    owner          TEXT COLLATE "C" NOT NULL,
    project_id     BIGINT NOT NULL,
    session_id     TEXT COLLATE "C" NOT NULL,
    key            TEXT COLLATE "C" NOT NULL,
    title          TEXT COLLATE "C" NOT NULL,
    role           TEXT COLLATE "C" NOT NULL,
    type           TEXT COLLATE "C" NOT NULL,
    priority       BIGINT NOT NULL,
    depends_on     TEXT COLLATE "C" NOT NULL,
    timeout_ns     BIGINT NOT NULL,
    max_retries    BIGINT NOT NULL,
    validate       BIGINT NOT NULL,
    state          TEXT COLLATE "C" NOT NULL,
    outcome        TEXT COLLATE "C" NOT NULL,
    assigned_model TEXT COLLATE "C" NOT NULL,
    waiting        BIGINT NOT NULL,
    open           BIGINT NOT NULL,
    failures       BIGINT NOT NULL,
    losses         BIGINT NOT NULL,
    attempt        BIGINT NOT NULL,
    worker         TEXT COLLATE "C" NOT NULL,
    submitter      TEXT COLLATE "C" NOT NULL,
    fence          BIGINT NOT NULL,
    lease_until    BIGINT NOT NULL,
    ready_at       BIGINT NOT NULL,
    created_at     BIGINT NOT NULL,
    started_at     BIGINT NOT NULL,
    completed_at   BIGINT NOT NULL,
    updated_at     BIGINT NOT NULL,
    reported       BIGINT NOT NULL DEFAULT 0,
    details        TEXT COLLATE "C" NOT NULL,
    payload        TEXT COLLATE "C" NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);

-- What the queue asks all the time is answered from indexes over open jobs
-- only, so that ended jobs cost nothing.
CREATE INDEX job_due ON job (priority DESC, seq, ready_at) WHERE state = 'QUEUED' AND waiting = 0;
CREATE INDEX job_ready ON job (ready_at) WHERE state = 'QUEUED' AND waiting = 0;
CREATE INDEX job_leasable ON job (assigned_model, priority DESC, seq) WHERE state = 'ASSIGNED';
CREATE INDEX job_lease ON job (lease_until, seq) WHERE state IN ('IN_PROGRESS', 'VALIDATING') AND root = 0;
CREATE INDEX job_busy ON job (project_id, state) WHERE state IN ('ASSIGNED', 'IN_PROGRESS') AND root = 0;
CREATE INDEX job_open ON job (state, owner, created_at)
    WHERE state IN ('QUEUED', 'ASSIGNED', 'IN_PROGRESS', 'SUBMITTED', 'VALIDATING') AND root = 0;

-- What people list. The sum is as in SQLite, for which it hides the index from
-- the queries above.
CREATE INDEX job_state ON job ((state || ''), seq);
CREATE INDEX job_root ON job (root_id, seq);
CREATE INDEX job_owner ON job (owner, seq);
CREATE INDEX job_project ON job (project_id, seq);

CREATE TABLE dependency (
    on_id   TEXT COLLATE "C" NOT NULL,
    job_seq BIGINT NOT NULL,
    PRIMARY KEY (on_id, job_seq)
);

-- How many jobs have ended, roots aside. Counting them in the job table would
-- cost more with each job that ever ended.
CREATE TABLE job_ended (
    owner   TEXT COLLATE "C" NOT NULL,
    state   TEXT COLLATE "C" NOT NULL,
    outcome TEXT COLLATE "C" NOT NULL,
    jobs    BIGINT NOT NULL,
    PRIMARY KEY (owner, state, outcome)
) WITH (fillfactor = 10);

CREATE TABLE event (
    seq        BIGINT PRIMARY KEY,
    type       TEXT COLLATE "C" NOT NULL,
    version    BIGINT NOT NULL,
    entity     TEXT COLLATE "C" NOT NULL,
    entity_id  TEXT COLLATE "C" NOT NULL,
    job_id     TEXT COLLATE "C" NOT NULL,
    root_id    TEXT COLLATE "C" NOT NULL,
    project_id BIGINT NOT NULL,
    actor      TEXT COLLATE "C" NOT NULL,
    owner      TEXT COLLATE "C" NOT NULL,
    at         BIGINT NOT NULL,
    data       TEXT COLLATE "C" NOT NULL
);

-- Only what names few events of the history has an index. Owner, project and
-- type are checked row by row from the cursor on. Nearly every event is about a
-- job, which has its index, so the entities' holds only the others.
CREATE INDEX event_job ON event (job_id, seq) WHERE job_id <> '';
CREATE INDEX event_root ON event (root_id, seq) WHERE root_id <> '';
CREATE INDEX event_entity ON event (entity_id, seq) WHERE entity_id <> job_id;

CREATE TABLE worker (
    id            TEXT COLLATE "C" PRIMARY KEY,
    identity      TEXT COLLATE "C" NOT NULL,
    incarnation   TEXT COLLATE "C" NOT NULL,
    role          TEXT COLLATE "C" NOT NULL,
    models        TEXT COLLATE "C" NOT NULL,
    drivers       TEXT COLLATE "C" NOT NULL,
    slots         BIGINT NOT NULL,
    version       TEXT COLLATE "C" NOT NULL,
    connected     BIGINT NOT NULL,
    registered_at BIGINT NOT NULL,
    seen_at       BIGINT NOT NULL
);

-- A record and the list of what its try left, as JSON: they are written once
-- and read whole.
CREATE TABLE record (
    job_id    TEXT COLLATE "C" NOT NULL,
    attempt   BIGINT NOT NULL,
    body      TEXT COLLATE "C" NOT NULL,
    artifacts TEXT COLLATE "C" NOT NULL,
    blobs     BYTEA NOT NULL DEFAULT '', -- the small ones that it names
    PRIMARY KEY (job_id, attempt)
);

CREATE TABLE api_key (
    id         TEXT COLLATE "C" PRIMARY KEY,
    kind       TEXT COLLATE "C" NOT NULL,
    name       TEXT COLLATE "C" NOT NULL,
    hash       TEXT COLLATE "C" NOT NULL UNIQUE,
    created_at BIGINT NOT NULL,
    revoked_at BIGINT NOT NULL
);

CREATE TABLE leader (
    name       TEXT COLLATE "C" PRIMARY KEY,
    holder     TEXT COLLATE "C" NOT NULL,
    fence      BIGINT NOT NULL,
    term_until BIGINT NOT NULL
);

CREATE TABLE reply (
    owner   TEXT COLLATE "C" NOT NULL,
    key     TEXT COLLATE "C" NOT NULL,
    request TEXT COLLATE "C" NOT NULL,
    body    TEXT COLLATE "C" NOT NULL,
    at      BIGINT NOT NULL,
    PRIMARY KEY (owner, key)
);
CREATE INDEX reply_at ON reply (at);
