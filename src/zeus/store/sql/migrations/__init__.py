"""The migrations of the database. The store applies the missing ones when it opens."""
