"""The store in a database: SQLite for one machine, Postgres for many."""
