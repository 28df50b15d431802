"""Names of the existing package, over the parts of this one. `finder` says which old module is found where.

docs/migrating.md lists every documented call of that package and what it does here. Units are those that its users
know: milliwatts and millijoules in `gpus` and `cpus`.
"""
