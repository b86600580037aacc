"""What the operator asks of a running cluster: see it, drain, flip and restart its workers.

Apart from the API: on a Unix socket in the cluster's private folder, and, if there is a token for
it, under `/admin` of the server's address.
"""
