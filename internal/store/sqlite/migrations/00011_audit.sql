-- The audit: records that are only appended, and the Merkle tree over them. A
-- purge removes records; what the tree keeps for them stays.

-- +goose Up
CREATE TABLE audit (
    seq          INTEGER PRIMARY KEY,
    at           BIGINT NOT NULL,
    category     TEXT NOT NULL,
    severity     TEXT NOT NULL,
    action       TEXT NOT NULL,
    message      TEXT NOT NULL,
    source       TEXT NOT NULL,
    actor        TEXT NOT NULL,
    target       TEXT NOT NULL,
    outcome      TEXT NOT NULL,
    request_id   TEXT NOT NULL,
    before_state TEXT NOT NULL, -- JSON, or ''
    after_state  TEXT NOT NULL,
    metadata     TEXT NOT NULL
);

-- What names few records has an index; the rest is checked row by row.
CREATE INDEX audit_target ON audit (target, seq);
CREATE INDEX audit_actor ON audit (actor, seq);
CREATE INDEX audit_action ON audit (action, seq);

-- The hashes of the tree that were complete with a record, from its leaf upwards.
CREATE TABLE audit_leaf (
    seq    INTEGER PRIMARY KEY,
    hashes BLOB NOT NULL
);

-- One row: how many records there ever were, up to which they were purged, and
-- the right edge of the tree.
CREATE TABLE audit_tree (
    name  TEXT PRIMARY KEY,
    size  BIGINT NOT NULL,
    floor BIGINT NOT NULL,
    peaks BLOB NOT NULL
);

CREATE TABLE audit_checkpoint (
    size   BIGINT NOT NULL,
    signer TEXT NOT NULL,
    at     BIGINT NOT NULL,
    note   TEXT NOT NULL,
    PRIMARY KEY (size, signer)
);
CREATE INDEX audit_checkpoint_signer ON audit_checkpoint (signer, size);
