"""What every layer uses and what knows nothing of the product: findings, errors, files.

It imports no other layer.
"""
