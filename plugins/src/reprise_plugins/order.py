"""The order in which samples are handed to the trainer."""


def stable_order(keys: list[str], prompts: list[str]) -> list[int]:
    """Return the positions of ``keys`` sorted by prompt, sample and output of a sample.

    Keys are ``<uid>_<sample>_<output>`` (verl's format); ``prompts`` are the uids in the order in
    which they were submitted. uids are random, their order is that of the data loader.
    """
    rank = {uid: position for position, uid in enumerate(prompts)}

    def place(position: int) -> tuple[int, int, int]:
        uid, sample, output = keys[position].rsplit("_", 2)
        return rank[uid], int(sample), int(output)

    return sorted(range(len(keys)), key=place)
