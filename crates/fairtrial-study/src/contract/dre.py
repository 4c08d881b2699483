

# -- appended by Fairtrial: calls the function above as design-research-experiments does (SF-45 to SF-47).
def __fairtrial_dre__(function, packet, condition, run_spec, evaluates):
    import inspect
    from types import SimpleNamespace

    def record(fields):
        return None if fields is None else SimpleNamespace(**fields)

    def called(target, *args, **kwargs):
        value = target(*args, **kwargs)
        if inspect.iscoroutine(value):
            import asyncio

            value = asyncio.run(value)
        return value

    def parameters(target):
        try:
            return list(inspect.signature(target).parameters.values())
        except (TypeError, ValueError):
            return []

    def fields(value):
        if isinstance(value, (list, tuple)):
            return [fields(each) for each in value]
        if isinstance(value, (dict, str, int, float, type(None))):
            return value
        if hasattr(value, "__dataclass_fields__"):
            return {name: getattr(value, name) for name in value.__dataclass_fields__}
        if callable(getattr(value, "to_dict", None)):
            try:
                given = value.to_dict()
            except Exception:
                given = None
            if isinstance(given, dict):
                return given
        return dict(vars(value)) if hasattr(value, "__dict__") else value

    found = function
    if isinstance(function, str):
        found = globals()
        for part in function.split("."):
            found = found[part] if type(found) is dict else getattr(found, part)
    if evaluates:
        if callable(getattr(found, "evaluate", None)):
            found = found.evaluate
        return fields(called(found, packet))
    packet, condition, run_spec = record(packet), record(condition), record(run_spec)
    seed = run_spec.seed
    problem = brief = None
    if packet is not None:
        problem, brief = packet.payload.get("problem_object"), packet.brief
    dependencies = {"problem_packet": packet, "run_spec": run_spec, "condition": condition, "seed": seed}
    if problem is not None:
        dependencies["problem"] = problem
    prompt = brief if problem is None else problem
    offered = {
        "problem_packet": packet,
        "problem": packet if problem is None else problem,
        "brief": brief,
        "run_spec": run_spec,
        "condition": condition,
        "seed": seed,
        "prompt": prompt,
        "input": prompt,
        "request_id": run_spec.run_id,
        "dependencies": dependencies,
    }
    if not callable(getattr(found, "run", None)):
        own = parameters(found)
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        if len(own) == 1 and own[0].kind in positional and own[0].name not in offered:
            found = called(found, condition)  # a factory
    target = found.run if callable(getattr(found, "run", None)) else found
    own = parameters(target)
    only = inspect.Parameter.POSITIONAL_ONLY
    named = {each.name for each in own if each.name in offered and each.kind is not only}
    if named:
        value = called(target, **{name: offered[name] for name in offered if name in named})
    else:
        takes = sum(each.kind in (only, inspect.Parameter.POSITIONAL_OR_KEYWORD) for each in own)
        if takes >= 2 or any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in own):
            value = called(target, packet, seed)
        elif takes == 1 or not own:
            value = called(target, packet)
        else:
            raise TypeError("the agent takes neither a problem packet nor a seed")

    def mapping(thing):
        return dict(thing) if isinstance(thing, dict) else {}

    def result(output, rest):
        refs = rest.get("trace_refs")
        events = rest.get("events")
        return {
            "output": output,
            "metrics": mapping(rest.get("metrics")),
            "metadata": mapping(rest.get("metadata")),
            "trace_refs": [str(each) for each in refs] if isinstance(refs, (list, tuple)) else [],
            "events": list(events) if isinstance(events, (list, tuple)) else [],
        }

    if isinstance(value, dict):
        output = {}
        for key in ("output", "outputs"):
            if key in value:
                output = value[key]
                if not isinstance(output, dict):
                    raise TypeError("`%s` is %s, not a mapping" % (key, type(output).__name__))
                break
        if not output and "text" in value:
            output = {"text": value["text"]}
        return result(output, value)
    if all(hasattr(value, name) for name in ("success", "output", "metadata")):
        given = mapping(value.output)
        final = given.get("final_output")
        if isinstance(final, dict):
            output = final
        elif isinstance(final, str):
            output = {"text": final}
        elif final is not None:
            output = {"final_output": final}
        else:
            text = next((name for name in ("text", "model_text") if name in given), None)
            output = given if text is None else {"text": str(given[text])}
        metrics, metadata = mapping(given.get("metrics")), mapping(value.metadata)
        response = getattr(value, "model_response", None)
        usage = getattr(response, "usage", None)
        usage_of = usage.get if isinstance(usage, dict) else lambda name: getattr(usage, name, None)
        for ours, theirs in (("input", "prompt"), ("output", "completion"), ("total", "total")):
            amount = usage_of(theirs + "_tokens")
            if isinstance(amount, int):
                metrics.setdefault(ours + "_tokens", amount)

        def is_named(text):
            return isinstance(text, str) and text.strip() != ""

        for ours, theirs in (("model_name", "model"), ("model_provider", "provider")):
            if is_named(getattr(response, theirs, None)):
                metadata[ours] = getattr(response, theirs)
        refs, more = [], metadata.get("trace_refs")
        for each in [metadata.get("trace_path"), *(more if isinstance(more, (list, tuple)) else [])]:
            if is_named(each) and each not in refs:
                refs.append(each)
        rest = {"metrics": metrics, "metadata": metadata, "trace_refs": refs, "events": given.get("events")}
        return result(output, rest)
    return result({"text": str(value)}, {})
