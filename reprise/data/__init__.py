"""Data and weights: fetch and verify locked files, check, convert and describe a user's own."""
