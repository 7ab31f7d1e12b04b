"""The rehearsal's stand-ins for a real model and real data: tiny, of the real class.

`build_model` is run by the rehearsal's interpreter and imports nothing of `reprise`.
"""
