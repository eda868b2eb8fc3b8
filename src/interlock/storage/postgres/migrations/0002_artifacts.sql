-- Artifacts by the SHA-256 digest of their content, in parts of 1 MiB.
CREATE TABLE artifacts (digest bytea PRIMARY KEY, size_bytes bigint NOT NULL);

CREATE TABLE artifact_parts (
    digest bytea NOT NULL REFERENCES artifacts ON DELETE CASCADE, number integer NOT NULL, content bytea NOT NULL,
    PRIMARY KEY (digest, number)
);

ALTER TABLE artifact_parts ALTER COLUMN content SET STORAGE EXTERNAL;
