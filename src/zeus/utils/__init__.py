"""Small tools, importable under the names of the existing package."""
