"""What sglang/utils.py imports of IPython.display, for its notebook examples."""


class HTML(str):
    """Marked-up text; outside a notebook it is the text itself."""


def display(*objects: object, **_: object) -> None:
    """Print what a notebook would show."""
    print(*objects)
