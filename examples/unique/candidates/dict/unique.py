"""A list without its repeats."""


def unique(items):
    """Each item once, in the order in which they first come."""
    return list(dict.fromkeys(items))
