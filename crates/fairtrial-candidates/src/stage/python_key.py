"""Keys of Python files: equal for files that differ in comments, layout, docstrings and names of function locals.

The engine runs this text as a source call, so it needs the standard library alone and Python 3.8 or later. It parses
candidates and never runs them. In doubt a name is kept: two equal files with two keys cost a run, two unequal files
with one key would cost the truth.
"""

import ast
import hashlib
import sys
import warnings

# Whoever calls one of these may see the names of locals. The first four are the specification's.
REVEALING = {"locals", "vars", "eval", "exec", "dir", "_getframe", "currentframe"}

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def keys(files):
    """A key for each file, given as bytes; None for what this Python cannot parse."""
    return [key(file) for file in files]


def key(file):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(file)
        drop_docstrings(tree)
        Renamer().visit_module(tree)
        text = ast.dump(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    # Trees of two versions of Python are never compared.
    version = "%d.%d" % sys.version_info[:2]
    return "%s:%s" % (version, hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest())


def drop_docstrings(tree):
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and node.body and is_text(node.body[0]):
            del node.body[0]
        elif isinstance(node, ast.Constant):
            node.kind = None  # `u"x"` is `"x"`


def is_text(statement):
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


class Scope:
    """Names that mean something here. A class's are seen in its own body alone; those kept are never renamed."""

    def __init__(self, parent, is_class=False):
        self.parent = parent
        self.is_class = is_class
        self.depth = parent.depth + 1 if parent else 0
        self.bound = set()
        self.kept = set()
        self.global_names = set()  # declared so
        self.nonlocal_names = set()
        self.new_names = {}

    def owner(self, name):
        """The scope whose local a name is, as seen from here; None for a global."""
        scope = self
        while scope.parent is not None:  # the module's names are globals
            seen = scope is self or not scope.is_class
            if seen and name in scope.global_names:
                return None
            if seen and name in scope.bound and name not in scope.nonlocal_names:
                return scope
            scope = scope.parent
        return None

    def new_name(self, name):
        """A name that no program can have, by the order in which names of this scope appear."""
        if name not in self.new_names:
            self.new_names[name] = "$%d.%d" % (self.depth, len(self.new_names))
        return self.new_names[name]


class Renamer:
    """Renames the locals of functions where they are bound and wherever they are meant."""

    def __init__(self):
        self.scope = None

    def visit_module(self, tree):
        self.scope = Scope(None)
        for statement in tree.body:
            self.visit(statement)

    def visit(self, node):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self.visit_function(node)
        elif isinstance(node, ast.Lambda):
            self.visit_lambda(node)
        elif isinstance(node, ast.ClassDef):
            self.visit_class(node)
        elif isinstance(node, COMPREHENSIONS):
            self.visit_comprehension(node)
        elif type(node).__name__ == "TypeAlias":
            self.visit_type_alias(node)
        else:
            self.rename_in(node)
            self.visit_all(ast.iter_child_nodes(node))

    def visit_all(self, nodes):
        for node in nodes:
            if node is not None:
                self.visit(node)

    def rename_in(self, node):
        """Names that this node itself holds."""
        if isinstance(node, ast.Name):
            node.id = self.renamed(node.id)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            node.name = self.renamed(node.name)
        elif isinstance(node, ast.alias) and node.asname:
            node.asname = self.renamed(node.asname)
        elif type(node).__name__ in ("MatchAs", "MatchStar") and node.name:
            node.name = self.renamed(node.name)
        elif type(node).__name__ == "MatchMapping" and node.rest:
            node.rest = self.renamed(node.rest)

    def renamed(self, name):
        owner = self.scope.owner(name)
        if owner is None or owner.is_class or name in owner.kept:
            return name
        return owner.new_name(name)

    def visit_function(self, node):
        # What stands outside the function's own names.
        self.visit_all(node.decorator_list)
        self.visit_defaults(node.args)
        with_types = self.enter_type_parameters(node)
        self.visit_all(annotations(node.args))
        self.visit_all([node.returns])
        self.enter(node, node.body, node.args)
        self.visit_all(node.body)
        self.leave()
        if with_types:
            self.leave()

    def visit_lambda(self, node):
        self.visit_defaults(node.args)
        self.enter(node, [node.body], node.args)
        self.visit(node.body)
        self.leave()

    def visit_class(self, node):
        self.visit_all(node.decorator_list)
        with_types = self.enter_type_parameters(node)
        self.visit_all(node.bases)
        self.visit_all(node.keywords)
        scope = Scope(self.scope, is_class=True)
        Binder(scope).visit_all(node.body)
        self.scope = scope
        self.visit_all(node.body)
        self.leave()
        if with_types:
            self.leave()

    def visit_type_alias(self, node):
        self.visit(node.name)
        with_types = self.enter_type_parameters(node)
        self.visit(node.value)
        if with_types:
            self.leave()

    def visit_comprehension(self, node):
        # The first iterable is computed outside.
        self.visit(node.generators[0].iter)
        scope = Scope(self.scope)
        binder = Binder(scope)
        for generator in node.generators:
            binder.visit(generator.target)
        if reveals(node):
            scope.kept |= scope.bound
        keep_nonlocals(scope, [node])
        self.scope = scope
        for number, generator in enumerate(node.generators):
            self.visit(generator.target)
            if number:
                self.visit(generator.iter)
            self.visit_all(generator.ifs)
        if isinstance(node, ast.DictComp):
            self.visit_all([node.key, node.value])
        else:
            self.visit(node.elt)
        self.leave()

    def visit_defaults(self, args):
        self.visit_all(args.defaults)
        self.visit_all(args.kw_defaults)

    def enter_type_parameters(self, node):
        parameters = getattr(node, "type_params", None)
        if not parameters:
            return False
        scope = Scope(self.scope)
        scope.bound = {parameter.name for parameter in parameters}
        scope.kept = set(scope.bound)
        self.scope = scope
        self.visit_all(parameters)
        return True

    def enter(self, node, body, args):
        scope = Scope(self.scope)
        binder = Binder(scope)
        binder.visit_all(body)
        parameters = {arg.arg for arg in all_parameters(args)}
        scope.bound |= parameters
        scope.kept |= parameters
        if reveals(node):
            scope.kept |= scope.bound
        keep_nonlocals(scope, body)
        self.scope = scope

    def leave(self):
        self.scope = self.scope.parent


class Binder:
    """Finds what a scope binds, without going into the scopes within it."""

    def __init__(self, scope):
        self.scope = scope

    def visit_all(self, nodes):
        for node in nodes:
            if node is not None:
                self.visit(node)

    def visit(self, node):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            # Its name is seen by others (`__name__`), so it is kept.
            self.keep(node.name)
            self.visit_all(node.decorator_list)
            if isinstance(node, ast.ClassDef):
                self.visit_all(node.bases)
                self.visit_all(node.keywords)
            else:
                self.visit_outside(node.args)
                self.visit_all(annotations(node.args))
                self.visit_all([node.returns])
        elif isinstance(node, ast.Lambda):
            self.visit_outside(node.args)
        elif isinstance(node, COMPREHENSIONS):
            self.visit(node.generators[0].iter)
            self.visit_walruses(node)
        elif isinstance(node, ast.Global):
            self.scope.global_names.update(node.names)
        elif isinstance(node, ast.Nonlocal):
            self.scope.nonlocal_names.update(node.names)
        else:
            self.bind(node)
            self.visit_all(ast.iter_child_nodes(node))

    def bind(self, node):
        """What this node itself binds."""
        kind = type(node).__name__
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            self.scope.bound.add(node.id)
        elif isinstance(node, ast.alias):
            if node.asname:
                self.scope.bound.add(node.asname)
            else:
                # The name says what is imported.
                self.keep(node.name.split(".")[0])
        elif kind in ("ExceptHandler", "MatchAs", "MatchStar") and node.name:
            self.scope.bound.add(node.name)
        elif kind == "MatchMapping" and node.rest:
            self.scope.bound.add(node.rest)
        elif kind == "TypeAlias":
            # A type alias knows its name, as a function does.
            self.keep(node.name.id)

    def keep(self, name):
        self.scope.bound.add(name)
        self.scope.kept.add(name)

    def visit_outside(self, args):
        self.visit_all(args.defaults)
        self.visit_all(args.kw_defaults)

    def visit_walruses(self, node):
        """`:=` in a comprehension binds in the function around it."""
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.NamedExpr):
                self.scope.bound.add(child.target.id)
            if not isinstance(child, ast.Lambda):
                self.visit_walruses(child)


def reveals(node):
    """Whether something within may ask for names of locals."""
    for child in ast.walk(node):
        if isinstance(child, ast.Name) and child.id in REVEALING:
            return True
        if isinstance(child, ast.Attribute) and child.attr in REVEALING:
            return True
    return False


def keep_nonlocals(scope, body):
    """A name that something within declares nonlocal is kept."""
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Nonlocal):
                scope.kept.update(node.names)


def all_parameters(args):
    return args.posonlyargs + args.args + args.kwonlyargs + [arg for arg in (args.vararg, args.kwarg) if arg]


def annotations(args):
    return [arg.annotation for arg in all_parameters(args)]
