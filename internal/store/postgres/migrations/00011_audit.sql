-- The audit: records that are only appended, and the Merkle tree over them. A
-- purge removes records; what the tree keeps for them stays.

-- +goose Up
CREATE TABLE audit (
    seq          BIGINT PRIMARY KEY,
    at           BIGINT NOT NULL,
    category     TEXT COLLATE "C" NOT NULL,
    severity     TEXT COLLATE "C" NOT NULL,
    action       TEXT COLLATE "C" NOT NULL,
    message      TEXT COLLATE "C" NOT NULL,
    source       TEXT COLLATE "C" NOT NULL,
    actor        TEXT COLLATE "C" NOT NULL,
    target       TEXT COLLATE "C" NOT NULL,
    outcome      TEXT COLLATE "C" NOT NULL,
    request_id   TEXT COLLATE "C" NOT NULL,
    before_state TEXT COLLATE "C" NOT NULL, -- JSON, or ''
    after_state  TEXT COLLATE "C" NOT NULL,
    metadata     TEXT COLLATE "C" NOT NULL
);

-- What names few records has an index; the rest is checked row by row.
CREATE INDEX audit_target ON audit (target, seq);
CREATE INDEX audit_actor ON audit (actor, seq);
CREATE INDEX audit_action ON audit (action, seq);

-- The hashes of the tree that were complete with a record, from its leaf upwards.
CREATE TABLE audit_leaf (
    seq    BIGINT PRIMARY KEY,
    hashes BYTEA NOT NULL
);

-- One row: how many records there ever were, up to which they were purged, and
-- the right edge of the tree.
CREATE TABLE audit_tree (
    name  TEXT COLLATE "C" PRIMARY KEY,
    size  BIGINT NOT NULL,
    floor BIGINT NOT NULL,
    peaks BYTEA NOT NULL
);

CREATE TABLE audit_checkpoint (
    size   BIGINT NOT NULL,
    signer TEXT COLLATE "C" NOT NULL,
    at     BIGINT NOT NULL,
    note   TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (size, signer)
);
CREATE INDEX audit_checkpoint_signer ON audit_checkpoint (signer, size);
