"""`reprise lock verify` and `lock update`: versions.lock against checkouts, engines and servers.

These chains need git, registries and hubs, which the `lock` layer does not know.
"""
