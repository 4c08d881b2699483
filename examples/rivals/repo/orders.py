"""Build orders: which task comes after which."""


def order(tasks, needs):
    """Tasks so that each comes after what it needs; of those that could be next, the first by name.

    `needs` maps a task to the tasks that it needs. A circle raises ValueError, which names its tasks.
    """
    done = []
    left = sorted(tasks)
    while left:
        for task in left:
            if all(need in done for need in needs.get(task, ())):
                done.append(task)
                left.remove(task)
                break
        else:
            raise ValueError("circle: " + ", ".join(left))
    return done
