"""How the database came to look as it does, step by step; the store applies what is missing when it opens."""
