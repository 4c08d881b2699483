//! The names that a Python module binds at its top level, by syntax alone: nothing is imported or run.

use std::collections::BTreeSet;

/// What a module binds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Names {
    pub(super) known: BTreeSet<String>,
    /// Whether `from x import *` binds names that nobody can see here.
    pub(super) has_star: bool,
}

/// Why a text is no module.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ReadError {
    pub(super) line: usize,
    pub(super) what: &'static str,
}

/// The names that `source` binds.
pub(super) fn names_of(source: &str) -> Result<Names, ReadError> {
    let mut names = Names::default();
    // The indentation of the `def` or `class` that later, deeper lines belong to.
    let mut inside: Option<usize> = None;
    for statement in statements(source)? {
        if inside.is_some_and(|indent| statement.indent > indent) {
            continue;
        }
        let text = statement.text.trim();
        inside = is_scope(text).then_some(statement.indent);
        for simple in text.split(';') {
            bind(simple.trim(), &mut names);
        }
    }
    Ok(names)
}

fn is_scope(text: &str) -> bool {
    ["def ", "async def ", "class "]
        .iter()
        .any(|word| text.starts_with(word))
}

fn bind(text: &str, names: &mut Names) {
    for word in ["async def ", "def ", "class "] {
        if let Some(rest) = text.strip_prefix(word) {
            return add(rest, names);
        }
    }
    if let Some(rest) = text.strip_prefix("import ") {
        for module in rest.split(',') {
            let module = module.trim();
            match module.split_once(" as ") {
                Some((_, alias)) => add(alias, names),
                None => add(module, names), // `import a.b` binds `a`
            }
        }
        return;
    }
    if text.starts_with("from ")
        && let Some((_, rest)) = text.split_once(" import ")
    {
        for name in rest.trim().trim_matches(['(', ')']).split(',') {
            match name.trim().split_once(" as ") {
                Some((_, alias)) => add(alias, names),
                None if name.trim() == "*" => names.has_star = true,
                None => add(name, names),
            }
        }
        return;
    }
    for word in ["for ", "async for "] {
        if let Some((targets, _)) = text
            .strip_prefix(word)
            .and_then(|rest| rest.split_once(" in "))
        {
            return targets.split(',').for_each(|target| add(target, names));
        }
    }
    // `if x: y = 1`, `else: y = 1`, `with open(p) as f: y = 1`
    for word in [
        "if ", "elif ", "else", "try", "except", "finally", "while ", "with ",
    ] {
        if let Some((head, rest)) = text
            .strip_prefix(word)
            .and_then(|rest| rest.rsplit_once(": "))
        {
            if let Some((_, alias)) = head.rsplit_once(" as ") {
                add(alias, names);
            }
            return bind(rest.trim(), names);
        }
        if text.starts_with(word)
            && let Some((_, alias)) = text.trim_end_matches(':').rsplit_once(" as ")
        {
            return add(alias, names);
        }
    }
    assigned(text, names);
}

/// `a = b = 1`, `a: int = 1`, `a, (b, *c) = x`; not `a == 1`, `a.b = 1` or `f(x=1)`.
fn assigned(text: &str, names: &mut Names) {
    let annotated = text.split_once(':').map(|(name, _)| name.trim());
    if let Some(name) = annotated.filter(|name| is_name(name) && text.contains('=')) {
        add(name, names);
        return;
    }
    let mut depth = 0_i32;
    let mut start = 0;
    let bytes = text.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth -= 1,
            b'=' if depth == 0 => {
                let before = at.checked_sub(1).map_or(b' ', |at| bytes[at]);
                if bytes.get(at + 1) == Some(&b'=') || b"=!<>+-*/%&|^@:".contains(&before) {
                    return;
                }
                let targets = text[start..at].trim().trim_matches(['(', ')', '[', ']']);
                for target in targets.split(',') {
                    let target = target.trim().trim_matches(['(', ')', '[', ']', '*']);
                    if is_name(target) {
                        add(target, names);
                    }
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}

fn is_name(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|c| c.is_alphabetic() || c == '_')
        && chars.all(|c| c.is_alphanumeric() || c == '_')
}

/// Adds the identifier that a text begins with.
fn add(text: &str, names: &mut Names) {
    let text = text.trim().trim_matches(['(', ')', '*']);
    let end = text
        .find(|c: char| !(c.is_alphanumeric() || c == '_'))
        .unwrap_or(text.len());
    if is_name(&text[..end]) {
        names.known.insert(text[..end].into());
    }
}

/// A logical line, its strings emptied and its comments gone.
struct Statement {
    indent: usize,
    text: String,
}

fn statements(source: &str) -> Result<Vec<Statement>, ReadError> {
    let chars: Vec<char> = source.chars().collect();
    let mut found = Vec::new();
    let mut text = String::new();
    let (mut at, mut line, mut depth, mut opened) = (0, 1, 0_usize, 1);
    while at < chars.len() {
        match chars[at] {
            '#' => {
                while at < chars.len() && chars[at] != '\n' {
                    at += 1;
                }
                continue;
            }
            quote @ ('"' | '\'') => {
                let start = line;
                let end = string_end(&chars, at, quote, &mut line);
                at = end.ok_or(ReadError {
                    line: start,
                    what: "a string does not end",
                })?;
                text.push_str("''");
                continue;
            }
            '\\' if chars.get(at + 1) == Some(&'\n') => {
                line += 1;
                text.push(' ');
                at += 2;
                continue;
            }
            '\n' => {
                line += 1;
                if depth == 0 {
                    finish(&mut text, &mut found);
                } else {
                    text.push(' ');
                }
            }
            bracket @ ('(' | '[' | '{') => {
                if depth == 0 {
                    opened = line;
                }
                depth += 1;
                text.push(bracket);
            }
            bracket @ (')' | ']' | '}') => {
                let what = "a bracket closes that none opened";
                depth = depth.checked_sub(1).ok_or(ReadError { line, what })?;
                text.push(bracket);
            }
            '\r' => {}
            other => text.push(other),
        }
        at += 1;
    }
    if depth > 0 {
        let what = "a bracket does not close";
        return Err(ReadError { line: opened, what });
    }
    finish(&mut text, &mut found);
    Ok(found)
}

fn finish(text: &mut String, found: &mut Vec<Statement>) {
    let line = std::mem::take(text);
    if line.trim().is_empty() {
        return;
    }
    let indent = line.len() - line.trim_start().len();
    found.push(Statement { indent, text: line });
}

/// Where the string that begins at `at` ends; lines within it are counted.
fn string_end(chars: &[char], at: usize, quote: char, line: &mut usize) -> Option<usize> {
    let triple = chars.get(at..at + 3) == Some(&[quote; 3]);
    let width = if triple { 3 } else { 1 };
    let mut at = at + width;
    while at < chars.len() {
        match chars[at] {
            '\\' => {
                *line += usize::from(chars.get(at + 1) == Some(&'\n'));
                at += 2;
                continue;
            }
            '\n' if !triple => return None,
            '\n' => *line += 1,
            c if c == quote => {
                let closing = chars.get(at..at + width);
                if closing.is_some_and(|closing| closing.iter().all(|c| *c == quote)) {
                    return Some(at + width);
                }
            }
            _ => {}
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ST-26
    #[test]
    fn module_level_names_are_found_by_syntax_alone() {
        let source = "\
'''def no(): pass
x = 1'''
import os, a.b, numpy as np
from m import (one,
    two as deux)  # and no more
def f(x=1, y={'k': 2}):
    inner = 3
    def nested(): pass
class C:
    attribute = 1
async def g(): ...
p = q = lambda: (r := 1)
n: int = 4
s, (t, *u) = 1, (2, 3)
z.attr = v == 1
d['k'] = 2
if True:
    branch = 1
try: tried = 1
except E as e: pass
with open('f') as handle:
    pass
for i, j in []: pass
a1 = 1; a2 = \\
  2
called(key=1)
";
        let names = names_of(source).expect("it is Python");
        let known: Vec<&str> = names.known.iter().map(String::as_str).collect();
        let mut expected = vec![
            "os", "a", "np", "one", "deux", "f", "C", "g", "p", "q", "n", "s", "t", "u", "branch",
            "tried", "e", "handle", "i", "j", "a1", "a2",
        ];
        expected.sort_unstable();
        assert_eq!(known, expected);
        assert!(!names.has_star && names_of("from m import *").expect("Python").has_star);
    }

    /// ST-26
    #[test]
    fn what_does_not_end_is_no_module() {
        let error = |line, what| Err(ReadError { line, what });
        assert_eq!(
            names_of("x = 1\ny = 'a\n"),
            error(2, "a string does not end")
        );
        assert_eq!(
            names_of("\ndef f(:\n  pass\n"),
            error(2, "a bracket does not close")
        );
        assert_eq!(
            names_of("x = )"),
            error(1, "a bracket closes that none opened")
        );
    }
}
