"""The tables of a store, as the newest of `migrations` defines them."""

from __future__ import annotations

import sqlalchemy as sa

metadata = sa.MetaData()
JOBS = sa.Table(
    "zeus_jobs",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("generation", sa.Text),
    sa.Column("sequence", sa.Integer),  # this and the next two: the last number used
    sa.Column("trials", sa.Integer),
    sa.Column("recurrences", sa.Integer),
    sa.Column("job", sa.Text),  # the latest revision
    sa.Column("mark", sa.Text),  # of the last sequence number, as in MARKS
)
REVISIONS = sa.Table(
    "zeus_revisions",
    metadata,
    sa.Column("job_id", sa.Text, primary_key=True),
    sa.Column("revision", sa.Integer, primary_key=True),
    sa.Column("job", sa.Text),
)
TRIALS = sa.Table(
    "zeus_trials",
    metadata,
    sa.Column("job_id", sa.Text, primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("recurrence", sa.Integer),
    sa.Column("sequence", sa.Integer),  # number of its latest change
    sa.Column("asked_at", sa.Text),
    sa.Column("changed_at", sa.Text),
    sa.Column("leased_until", sa.Text),  # null: not open
    sa.Column("so_far", sa.Text),
    sa.Column("trial", sa.Text),
)
EVENTS = sa.Table(
    "zeus_events",
    metadata,
    sa.Column("job_id", sa.Text, primary_key=True),
    sa.Column("sequence", sa.Integer, primary_key=True),
    sa.Column("event", sa.Text),
)
PROFILES = sa.Table(
    "zeus_profiles",
    metadata,
    sa.Column("job", sa.Text, primary_key=True),
    sa.Column("batch_size", sa.Integer, primary_key=True),
    sa.Column("gpu_model", sa.Text, primary_key=True),
    sa.Column("gpu_count", sa.Integer, primary_key=True),
    sa.Column("profile", sa.Text),
)
TOKENS = sa.Table(
    "zeus_tokens",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text),
    sa.Column("scope", sa.Text),
    sa.Column("hash", sa.Text),
    sa.Column("created_at", sa.Text),
    sa.Column("revoked_at", sa.Text),
)
SESSIONS = sa.Table(
    "zeus_sessions",
    metadata,
    sa.Column("hash", sa.Text, primary_key=True),
    sa.Column("token_id", sa.Text),
    sa.Column("until", sa.Text),
)
PLACES = sa.Table(
    "zeus_places",
    metadata,
    sa.Column("job_id", sa.Text, primary_key=True),
    sa.Column("gpu_model", sa.Text),
    sa.Column("max_watts", sa.Float),
    sa.Column("gpu_count", sa.Integer),
)
NUMBERS = sa.Table(  # the last trial number of each forgotten job, so that no number is used twice
    "zeus_numbers",
    metadata,
    sa.Column("job_id", sa.Text, primary_key=True),
    sa.Column("trials", sa.Integer),
)
MARKS = sa.Table(  # a random mark for each change, so that histories that differ have different marks
    "zeus_marks",
    metadata,
    sa.Column("job_id", sa.Text, primary_key=True),
    sa.Column("sequence", sa.Integer, primary_key=True),
    sa.Column("mark", sa.Text),
)
DIGESTS = sa.Table(  # a cache: a row is of use only while its stamp is that of its job
    "zeus_digests",
    metadata,
    sa.Column("job_id", sa.Text, primary_key=True),
    sa.Column("stamp", sa.Text),
    sa.Column("digest", sa.Text),
)
ASKS = sa.Table(
    "zeus_asks",
    metadata,
    sa.Column("job_id", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("number", sa.Integer),
)
