//! The keys that Python makes of Python files, under every interpreter that is found. Skipped, with a word, where there
//! is none.

use std::io::Write;
use std::process::{Command, Stdio};

use fairtrial_candidates::stage::{PYTHON_KEY_FUNCTION, PYTHON_KEY_SOURCE};
use fairtrial_tests::note;

/// Keys of the texts; none where there is no such interpreter.
fn keys(python: &str, texts: &[&str]) -> Option<Vec<Option<String>>> {
    let caller = format!(
        "import json, sys\nexec(json.loads(sys.stdin.readline()))\ntexts = json.loads(sys.stdin.readline())\nprint(json.dumps({PYTHON_KEY_FUNCTION}([t.encode() for t in texts])))"
    );
    #[expect(
        clippy::disallowed_methods,
        reason = "a test runs the text that the engine will run"
    )]
    let child = Command::new(python)
        .args(["-I", "-W", "error", "-c", &caller])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        return None;
    };
    let input = format!(
        "{}\n{}\n",
        serde_json::json!(PYTHON_KEY_SOURCE),
        serde_json::json!(texts)
    );
    let mut stdin = child.stdin.take().expect("piped");
    // Who ends without reading says why by its exit status.
    let _unread = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    // A version manager may have a command for a version that it has not chosen.
    match output.status.success() {
        true => Some(serde_json::from_slice(&output.stdout).expect("JSON")),
        false if python == "python3" => panic!("{}", String::from_utf8_lossy(&output.stderr)),
        false => None,
    }
}

const PYTHONS: [&str; 8] = [
    "python3",
    "python3.8",
    "python3.9",
    "python3.10",
    "python3.11",
    "python3.12",
    "python3.13",
    "python3.14",
];

/// Keys of both texts of each pair, under each interpreter.
fn each_pair(pairs: &[(&str, &str)], check: impl Fn(&str, &str, Option<&str>, Option<&str>)) {
    let texts: Vec<_> = pairs
        .iter()
        .flat_map(|(one, other)| [*one, *other])
        .collect();
    let mut asked = 0;
    for python in PYTHONS {
        let Some(keys) = keys(python, &texts) else {
            continue;
        };
        asked += 1;
        for (pair, keys) in pairs.iter().zip(keys.chunks(2)) {
            check(python, pair.0, keys[0].as_deref(), keys[1].as_deref());
        }
    }
    if asked == 0 {
        note("skipped: there is no python3");
    }
}

/// CA-17
#[test]
fn what_is_the_same_program_has_one_key() {
    let pairs = [
        ("x = 1\n", "x=1 # one\n\n"),
        ("x = (1 +\n  2)", "x = 1 + 2"),
        ("x = 'a' 'b'", "x = \"ab\""),
        ("x = u'a'; y = 0x10", "x = 'a'; y = 16"),
        ("'doc'\nx = 1", "x = 1"),
        (
            "def f():\n    'doc'\n    return 1",
            "def f():\n    'other'\n    return 1",
        ),
        ("class C:\n    'doc'\n    x = 1", "class C:\n    x = 1"),
        (
            "async def f():\n    'doc'\n    return 1",
            "async def f():\n    return 1",
        ),
        (
            "def f(a):\n    b = a\n    return b",
            "def f(a):\n    c = a\n    return c",
        ),
        (
            "def f():\n    a = 1; b = 2\n    return a - b",
            "def f():\n    b = 1; a = 2\n    return b - a",
        ),
        (
            "def f(x):\n    for i in x:\n        g(i)",
            "def f(x):\n    for j in x:\n        g(j)",
        ),
        (
            "def f():\n    with o() as h:\n        h()",
            "def f():\n    with o() as k:\n        k()",
        ),
        (
            "def f():\n    try: g()\n    except E as e:\n        print(e)",
            "def f():\n    try: g()\n    except E as err:\n        print(err)",
        ),
        (
            "def f():\n    import numpy as np\n    return np.x",
            "def f():\n    import numpy as n\n    return n.x",
        ),
        (
            "def f(x):\n    if (y := x): return y",
            "def f(x):\n    if (z := x): return z",
        ),
        (
            "def f():\n    a = 1\n    def g():\n        return a\n    return g",
            "def f():\n    b = 1\n    def g():\n        return b\n    return g",
        ),
        (
            "def f(x):\n    return [y * y for y in x]",
            "def f(x):\n    return [z * z for z in x]",
        ),
        ("x = [y for y in z]", "x = [w for w in z]"),
        (
            "def f(x):\n    return {a: b for a, b in x if a}",
            "def f(x):\n    return {k: v for k, v in x if k}",
        ),
        (
            "def f(x):\n    [y := z for z in x]\n    return y",
            "def f(x):\n    [a := b for b in x]\n    return a",
        ),
        (
            "def f(self):\n    del_ = 1\n    del del_",
            "def f(self):\n    gone = 1\n    del gone",
        ),
        (
            "def f():\n    x: int = 1\n    return x",
            "def f():\n    y: int = 1\n    return y",
        ),
        (
            "def f(x):\n    match x:\n        case [a, *b]: return a, b\n        case {'k': v, **r}: return v, r\n        case C(z=q) as w: return q, w",
            "def f(x):\n    match x:\n        case [c, *d]: return c, d\n        case {'k': e, **g}: return e, g\n        case C(z=h) as i: return h, i",
        ),
        (
            "def f[T](x: T):\n    y: T = x\n    return y",
            "def f[T](x: T):\n    z: T = x\n    return z",
        ),
    ];
    each_pair(&pairs, |python, text, one, other| {
        let newer = text.contains("match") || text.contains("[T]");
        assert!(one.is_some() || newer, "{python}: {text}");
        assert_eq!(one, other, "{python}: {text}");
    });
}

/// CA-17
#[test]
fn what_may_be_another_program_has_another_key() {
    let pairs = [
        ("x = 1", "x = 2"),
        ("x = 1", "x = 1.0"),
        ("x = 1", "x = True"),
        ("x = 'a'", "x = b'a'"),
        ("x = 0.0", "x = -0.0"),
        ("x = 1", "y = 1"),
        ("x = 'not doc'", "x = 'other'"),
        ("def f():\n    g()\n    'not doc'", "def f():\n    g()"),
        ("def f(a):\n    return a", "def f(b):\n    return b"),
        ("f = lambda a: a", "f = lambda b: b"),
        ("def f(*a, **k): pass", "def f(*b, **k): pass"),
        (
            "def f():\n    global x\n    x = 1",
            "def f():\n    global y\n    y = 1",
        ),
        ("def f():\n    return x", "def f():\n    return y"),
        (
            "def f():\n    x = 1\n    return x",
            "def f():\n    x = 1\n    return y",
        ),
        (
            "def f():\n    a = 1\n    def g():\n        nonlocal a\n        a = 2\n    return g",
            "def f():\n    b = 1\n    def g():\n        nonlocal b\n        b = 2\n    return g",
        ),
        (
            "def f():\n    a = 1\n    return locals()",
            "def f():\n    b = 1\n    return locals()",
        ),
        (
            "def f():\n    a = 1\n    return vars()",
            "def f():\n    b = 1\n    return vars()",
        ),
        (
            "def f():\n    a = 1\n    return eval('a')",
            "def f():\n    b = 1\n    return eval('a')",
        ),
        (
            "def f():\n    a = 1\n    exec('a')",
            "def f():\n    b = 1\n    exec('a')",
        ),
        (
            "def f():\n    a = 1\n    return builtins.eval('a')",
            "def f():\n    b = 1\n    return builtins.eval('a')",
        ),
        (
            "def f():\n    a = 1\n    return lambda: (a, eval('a'))",
            "def f():\n    b = 1\n    return lambda: (b, eval('a'))",
        ),
        (
            "def f(x):\n    return [eval('y') for y in x]",
            "def f(x):\n    return [eval('y') for z in x]",
        ),
        (
            "def f():\n    import a\n    return a",
            "def f():\n    import b\n    return b",
        ),
        (
            "def f():\n    def g(): pass\n    return g",
            "def f():\n    def h(): pass\n    return h",
        ),
        (
            "def f():\n    class C: pass\n    return C",
            "def f():\n    class D: pass\n    return D",
        ),
        (
            "def f():\n    class C:\n        a = 1\n    return C",
            "def f():\n    class C:\n        b = 1\n    return C",
        ),
        // In the class, `x = x` reads the global; after the rename it would read the function's.
        (
            "def f():\n    x = 1\n    class C:\n        x = x\n    return C",
            "def f():\n    y = 1\n    class C:\n        x = y\n    return C",
        ),
        (
            "def f():\n    x = 1\n    class C:\n        global x\n        x = 2\n        def g(self): return x",
            "def f():\n    y = 1\n    class C:\n        global x\n        x = 2\n        def g(self): return x",
        ),
        (
            "def f():\n    a = 1\n    def g(a):\n        return a\n    return g",
            "def f():\n    b = 1\n    def g(a):\n        return b\n    return g",
        ),
        (
            "def f():\n    a = 1; b = 2\n    return a - b",
            "def f():\n    a = 1; b = 2\n    return b - a",
        ),
        (
            "def f(x):\n    return [a for a in x for b in a]",
            "def f(x):\n    return [b for a in x for b in a]",
        ),
        (
            "def f(y):\n    return [y for y in y]",
            "def f(y):\n    return [z for z in z]",
        ),
        (
            "def f(a, b=lambda: c): c = 1",
            "def f(a, b=lambda: d): c = 1",
        ),
        (
            "def f():\n    x = 1\n    print(f'{x=}')",
            "def f():\n    y = 1\n    print(f'{y=}')",
        ),
        (
            "def f():\n    T = 1\n    type X[T] = list[T]\n    return X",
            "def f():\n    U = 1\n    type X[T] = list[U]\n    return X",
        ),
        (
            "def f():\n    T = 1\n    @T\n    def g[T](): pass",
            "def f():\n    U = 1\n    @T\n    def g[T](): pass",
        ),
    ];
    each_pair(&pairs, |python, text, one, other| {
        let newer = text.contains("[T]");
        assert!(one.is_some() || newer, "{python}: {text}");
        assert!(one != other || one.is_none(), "{python}: {text}");
    });
}

/// CA-17
#[test]
fn what_cannot_be_parsed_has_no_key() {
    let deep = format!("x = {}1{}", "(".repeat(5000), ")".repeat(5000));
    let long = format!("x = {}1", "1 + ".repeat(100_000));
    let pairs = [
        ("x = (", "def f(:"),
        ("\0", "x = '"),
        (&deep, &long),
        ("match = 1 2", "print 1"),
    ];
    each_pair(&pairs, |python, text, one, other| {
        let shown: String = text.chars().take(20).collect();
        assert_eq!((one, other), (None, None), "{python}: {shown}");
    });
}
