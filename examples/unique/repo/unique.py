"""A list without its repeats."""


def unique(items):
    """Each item once, in the order in which they first come."""
    found = []
    for item in items:
        if item not in found:
            found.append(item)
    return found
