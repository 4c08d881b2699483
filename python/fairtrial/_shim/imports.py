# What is done to a module when, and if, the candidate imports it.
import sys as _sys


class AfterImport:
    """Acts on modules once they are loaded: now, if they are, or when the candidate imports them."""

    def __init__(self):
        self.actions = {}
        self.lasting = {}  # those that wait beyond the present call
        self.placed = False

    def act(self, name, action, lasting=False):
        module = _modules.get(name)
        if module is not None:
            action(module)
            return
        (self.lasting if lasting else self.actions)[name] = action
        if self not in _sys.meta_path:
            _sys.meta_path.insert(0, self)
        self.placed = True

    def clear(self):
        if self.placed:
            self.actions.clear()
            if not self.lasting:
                self.placed = False
                if self in _sys.meta_path:
                    _sys.meta_path.remove(self)

    def find_spec(self, name, path=None, target=None):
        action = self.actions.pop(name, None) or self.lasting.pop(name, None)
        if action is None:
            return None
        for finder in _sys.meta_path:
            find_spec = None if finder is self else getattr(finder, "find_spec", None)
            spec = find_spec(name, path, target) if find_spec else None
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _ActingLoader(spec, action)
                return spec
        return None


class _ActingLoader:
    """Stands in for a loader during one import."""

    def __init__(self, spec, action):
        self.spec, self.loader, self.action = spec, spec.loader, action

    def __getattr__(self, name):
        return getattr(self.loader, name)

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        self.spec.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        self.action(module)
