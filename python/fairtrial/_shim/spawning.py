# Children with an interpreter of their own (`multiprocessing` with `spawn` or `forkserver`). Those of a script import
# its file again; a call's functions are in no file, so its children are sent the source, or the functions.
import sys as _sys

# Runs in the worker, and in each child before it looks for the function that it is to call.
_SPAWNING = '''
import sys


def hand_on(spawn, describe):
    """Has what is sent to new children begin with what `describe` gives: the names that this text finds there."""
    plain = spawn.get_preparation_data

    class Origin:
        def __reduce__(self):
            return exec, (describe()["text"], describe())

    def get_preparation_data(name):
        return dict(plain(name), fairtrial=Origin())

    spawn.get_preparation_data = get_preparation_data


class CallSource:
    """Finds the module of a call's source."""

    def __init__(self, filename, source):
        self.filename, self.source = filename, source

    def find_spec(self, name, path=None, target=None):
        if name == "__candidate__":
            from importlib.machinery import ModuleSpec

            return ModuleSpec(name, self, origin=self.filename)

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        import linecache

        lines = [line + "\\n" for line in self.source.splitlines()]
        linecache.cache[self.filename] = len(self.source), None, lines, self.filename
        module.__file__ = self.filename
        exec(compile(self.source, self.filename, "exec", 0, True), module.__dict__)


def take_over(path, source, functions):
    sys.path[:] = path
    if source is not None:
        sys.meta_path.append(CallSource(*source))
    for pickled in functions:
        import pickle

        vars(sys.modules["__main__"]).update(pickle.loads(pickled))


if "text" in globals():
    import multiprocessing.spawn

    take_over(path, source, functions)
    given = {"text": text, "path": path, "source": source, "functions": functions}
    hand_on(multiprocessing.spawn, lambda: given)
'''


def watch_spawning(spawn, worker):
    """`spawn` is the module; the worker knows what its present call consists of."""
    names = {}
    exec(compile(_SPAWNING, "<fairtrial>", "exec"), names)

    def given():
        functions = _pickled_main(worker.function) if worker.source is None else []
        return {"text": _SPAWNING, "path": list(_sys.path), "source": worker.source, "functions": functions}

    names["hand_on"](spawn, given)


def _pickled_main(function):
    """What the host's functions brought to `__main__`: in one piece, or else each thing that can be pickled."""
    names = getattr(function, "__globals__", _main)
    if names is not _main and names.get("__name__") == "__main__":  # those that it refers to came with it
        _main.update((name, value) for name, value in names.items() if not name.startswith("__"))
    try:
        from cloudpickle import dumps
    except ImportError:
        return []
    things = {name: value for name, value in _main.items() if not name.startswith("__")}
    try:
        return [dumps(things)]
    except Exception:
        pass
    pickled = []
    for name, value in things.items():
        try:
            pickled.append(dumps({name: value}))
        except Exception:
            pass  # who looks for it in a child finds nothing of that name
    return pickled
