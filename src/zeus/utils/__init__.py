"""Small tools under the names that users know."""
