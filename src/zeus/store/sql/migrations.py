"""The tables of a store, by version: what each version adds to the one before.

Version 0001 is that of Zeus 0.3, the first whose stores every later one reads. No statement of a published version is
changed any more.
"""

from __future__ import annotations

# Columns named `job`, `trial`, `event`, `profile`, `so_far` and `digest` hold JSON, and times are ISO 8601 text.
MIGRATIONS = {
    "0001": (
        "CREATE TABLE IF NOT EXISTS zeus_version (version_num TEXT NOT NULL PRIMARY KEY)",
        # `sequence`, `trials` and `recurrences` are the last numbers used; `job` is the latest revision; `mark` is that
        # of the last sequence number, as in zeus_marks.
        """
        CREATE TABLE zeus_jobs (
            id TEXT NOT NULL PRIMARY KEY,
            generation TEXT NOT NULL,
            sequence INTEGER NOT NULL,
            trials INTEGER NOT NULL,
            recurrences INTEGER NOT NULL,
            job TEXT NOT NULL,
            mark TEXT NOT NULL
        )""",
        """
        CREATE TABLE zeus_revisions (
            job_id TEXT NOT NULL REFERENCES zeus_jobs (id),
            revision INTEGER NOT NULL,
            job TEXT NOT NULL,
            PRIMARY KEY (job_id, revision)
        )""",
        # `sequence` is the number of its latest change; `leased_until` is null unless the trial is open.
        """
        CREATE TABLE zeus_trials (
            job_id TEXT NOT NULL REFERENCES zeus_jobs (id),
            number INTEGER NOT NULL,
            recurrence INTEGER NOT NULL,
            sequence INTEGER NOT NULL,
            asked_at TEXT NOT NULL,
            changed_at TEXT NOT NULL,
            leased_until TEXT,
            so_far TEXT,
            trial TEXT NOT NULL,
            PRIMARY KEY (job_id, number)
        )""",
        "CREATE INDEX zeus_trials_by_sequence ON zeus_trials (job_id, sequence)",  # new events
        "CREATE INDEX zeus_trials_by_leased_until ON zeus_trials (job_id, leased_until)",  # lapsed leases
        "CREATE INDEX zeus_trials_by_recurrence ON zeus_trials (job_id, recurrence)",
        """
        CREATE TABLE zeus_events (
            job_id TEXT NOT NULL REFERENCES zeus_jobs (id),
            sequence INTEGER NOT NULL,
            event TEXT NOT NULL,
            PRIMARY KEY (job_id, sequence)
        )""",
        # A random mark for each change, so that histories that differ have different marks.
        """
        CREATE TABLE zeus_marks (
            job_id TEXT NOT NULL REFERENCES zeus_jobs (id),
            sequence INTEGER NOT NULL,
            mark TEXT NOT NULL,
            PRIMARY KEY (job_id, sequence)
        )""",
        # The keys of asks, in case one is repeated.
        """
        CREATE TABLE zeus_asks (
            job_id TEXT NOT NULL REFERENCES zeus_jobs (id),
            key TEXT NOT NULL,
            number INTEGER NOT NULL,
            PRIMARY KEY (job_id, key)
        )""",
        # The GPUs of clients that give them only once.
        """
        CREATE TABLE zeus_places (
            job_id TEXT NOT NULL PRIMARY KEY REFERENCES zeus_jobs (id),
            gpu_model TEXT NOT NULL,
            max_watts DOUBLE PRECISION NOT NULL,
            gpu_count INTEGER NOT NULL
        )""",
        # A cache: a row is of use only while its stamp is that of its job.
        """
        CREATE TABLE zeus_digests (
            job_id TEXT NOT NULL PRIMARY KEY,
            stamp TEXT NOT NULL,
            digest TEXT NOT NULL
        )""",
        # A cache, too: the state of its policy after the event of this sequence number and mark.
        """
        CREATE TABLE zeus_snapshots (
            job_id TEXT NOT NULL PRIMARY KEY,
            stamp TEXT NOT NULL,
            sequence INTEGER NOT NULL,
            mark TEXT NOT NULL,
            state BYTEA NOT NULL
        )""",
        # The last trial number of each forgotten job, so that no number is used twice.
        "CREATE TABLE zeus_numbers (job_id TEXT NOT NULL PRIMARY KEY, trials INTEGER NOT NULL)",
        """
        CREATE TABLE zeus_profiles (
            job TEXT NOT NULL,
            batch_size INTEGER NOT NULL,
            gpu_model TEXT NOT NULL,
            gpu_count INTEGER NOT NULL,
            profile TEXT NOT NULL,
            PRIMARY KEY (job, batch_size, gpu_model, gpu_count)
        )""",
        """
        CREATE TABLE zeus_tokens (
            id TEXT NOT NULL PRIMARY KEY,
            name TEXT NOT NULL,
            scope TEXT NOT NULL,
            hash TEXT NOT NULL,
            created_at TEXT NOT NULL,
            revoked_at TEXT
        )""",
        """
        CREATE TABLE zeus_sessions (
            hash TEXT NOT NULL PRIMARY KEY,
            token_id TEXT NOT NULL REFERENCES zeus_tokens (id),
            until TEXT NOT NULL
        )""",
    ),
}
