# What judges a design by a function of the user's: a `callable_ref` constraint (SF-39).
def kept(reference, conditions):
    import importlib

    module, _, attribute = reference.partition(":")
    rule = importlib.import_module(module)
    for part in attribute.split("."):
        rule = getattr(rule, part)
    if not callable(rule):
        raise TypeError("`%s` is not callable" % reference)
    judged = []
    for factors, blocks in conditions:
        try:
            judged.append(bool(rule(factors, blocks)))
        except Exception as error:
            judged.append("%s: %s" % (type(error).__name__, error))
            break
    return judged
