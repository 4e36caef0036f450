-- Bytes that all managers reach, in parts, so that none is held in memory
-- whole. A blob that has its row here is complete.

-- +goose Up
CREATE TABLE blob (
    digest TEXT COLLATE "C" PRIMARY KEY,
    size   BIGINT NOT NULL,
    wanted BIGINT NOT NULL -- when it was last put or asked for, to within a minute
);
CREATE TABLE blob_part (
    digest TEXT COLLATE "C" NOT NULL,
    part   BIGINT NOT NULL,
    data   BYTEA NOT NULL,
    PRIMARY KEY (digest, part)
);
ALTER TABLE blob_part ALTER COLUMN data SET STORAGE EXTERNAL;

-- The live output of running jobs. What counts in the end is what the result
-- carries, so this need not outlive a crash of the server.
CREATE UNLOGGED TABLE output (
    job_id TEXT COLLATE "C" NOT NULL,
    fence  BIGINT NOT NULL,
    stream BIGINT NOT NULL,
    at     BIGINT NOT NULL, -- offset of the first byte
    data   BYTEA NOT NULL,
    PRIMARY KEY (job_id, fence, stream, at)
);
ALTER TABLE output ALTER COLUMN data SET STORAGE EXTERNAL;
