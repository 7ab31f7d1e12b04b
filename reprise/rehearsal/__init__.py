"""The rehearsal's stand-in for a real model: tiny, random, of the real class."""
