//! One glob of gitignore's kind, over bytes. By hand: `globset` brings the regular expressions of five crates for what is
//! two loops here, and matches text of paths, not the directories above them.

use crate::stage::path::TreePath;

#[derive(Debug, Clone)]
pub(super) struct Glob {
    /// Whether it begins at the root.
    anchored: bool,
    /// Whether it means directories only.
    directory: bool,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    /// `**`: any number of components.
    Any,
    One(Vec<Token>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    /// `*`
    Any,
    /// `?`
    One,
    Byte(u8),
    Set {
        negated: bool,
        ranges: Vec<(u8, u8)>,
    },
}

impl Glob {
    pub(super) fn read(text: &str) -> Result<Self, &'static str> {
        let (text, directory) = match text.strip_suffix('/') {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let anchored = text.contains('/');
        let text = text.strip_prefix('/').unwrap_or(text);
        if text.is_empty() {
            return Err("it names nothing");
        }
        let mut parts = Vec::new();
        for part in text.split('/') {
            match part {
                "" => return Err("it has a component without a name"),
                "**" if parts.last() == Some(&Part::Any) => {}
                "**" => parts.push(Part::Any),
                _ => parts.push(Part::One(read_tokens(part.as_bytes())?)),
            }
        }
        Ok(Self {
            anchored,
            directory,
            parts,
        })
    }

    /// Whether it fits the path or a directory above it.
    pub(super) fn covers(&self, path: &TreePath) -> bool {
        let components: Vec<_> = path.as_bytes().split(|byte| *byte == b'/').collect();
        let fits_own = !self.directory && self.fits(&components);
        fits_own || (1..components.len()).any(|end| self.fits(&components[..end]))
    }

    fn fits(&self, components: &[&[u8]]) -> bool {
        match self.anchored {
            true => fit_parts(&self.parts, components),
            false => fit_parts(&self.parts, &components[components.len() - 1..]),
        }
    }
}

/// Which beginnings of the path are used up by the parts so far: as many steps as parts times components, whatever the
/// glob.
fn fit_parts(parts: &[Part], components: &[&[u8]]) -> bool {
    let mut used = vec![false; components.len() + 1];
    used[0] = true;
    for (at, part) in parts.iter().enumerate() {
        let last = at + 1 == parts.len();
        let mut next = vec![false; used.len()];
        for from in (0..used.len()).filter(|from| used[*from]) {
            match part {
                // At the end it means what is inside, not the directory itself.
                Part::Any if last => {
                    next[(from + 1).min(components.len())..].fill(from < components.len())
                }
                Part::Any => next[from..].fill(true),
                Part::One(tokens) => {
                    if components
                        .get(from)
                        .is_some_and(|name| fit_tokens(tokens, name))
                    {
                        next[from + 1] = true;
                    }
                }
            }
        }
        used = next;
    }
    used[components.len()]
}

/// A name against one component's tokens: on a mismatch the last star takes one byte more.
fn fit_tokens(tokens: &[Token], name: &[u8]) -> bool {
    let (mut token, mut at) = (0, 0);
    let mut star = None;
    while at < name.len() {
        match tokens.get(token) {
            Some(Token::Any) => {
                star = Some((token, at));
                token += 1;
            }
            Some(one) if one.fits(name[at]) => (token, at) = (token + 1, at + 1),
            _ => match &mut star {
                None => return false,
                Some((after, taken)) => {
                    *taken += 1;
                    (token, at) = (*after + 1, *taken);
                }
            },
        }
    }
    tokens[token..].iter().all(|token| *token == Token::Any)
}

impl Token {
    fn fits(&self, byte: u8) -> bool {
        match self {
            Self::Any => false,
            Self::One => true,
            Self::Byte(own) => *own == byte,
            Self::Set { negated, ranges } => {
                let inside = ranges
                    .iter()
                    .any(|(low, high)| (*low..=*high).contains(&byte));
                inside != *negated
            }
        }
    }
}

fn read_tokens(mut text: &[u8]) -> Result<Vec<Token>, &'static str> {
    let mut tokens = Vec::new();
    while let Some((byte, rest)) = text.split_first() {
        text = rest;
        tokens.push(match byte {
            b'*' => Token::Any,
            b'?' => Token::One,
            b'[' => {
                let (set, rest) = read_set(text)?;
                text = rest;
                set
            }
            b'\\' => {
                let (escaped, rest) = text.split_first().ok_or("it ends in a backslash")?;
                text = rest;
                Token::Byte(*escaped)
            }
            _ => Token::Byte(*byte),
        });
    }
    Ok(tokens)
}

/// What follows a `[`. A `]` that comes first stands for itself.
fn read_set(text: &[u8]) -> Result<(Token, &[u8]), &'static str> {
    let unclosed = "a `[` is not closed";
    let (negated, text) = match text.first() {
        Some(b'!' | b'^') => (true, &text[1..]),
        _ => (false, text),
    };
    let end = text
        .iter()
        .skip(1)
        .position(|byte| *byte == b']')
        .ok_or(unclosed)?
        + 1;
    let (mut members, rest) = (&text[..end], &text[end + 1..]);
    let mut ranges = Vec::new();
    while let [low, after @ ..] = members {
        (members, _) = match after {
            [b'-', high, after @ ..] => (after, ranges.push((*low, *high))),
            _ => (after, ranges.push((*low, *low))),
        };
    }
    Ok((Token::Set { negated, ranges }, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_fit_as_gitignore_has_it() {
        let table = [
            ("a", "a", true),
            ("a", "x/a", true),
            ("a", "a/x/y", true),
            ("a/", "a", false),
            ("a/", "a/x", true),
            ("/a", "a", true),
            ("/a", "x/a", false),
            ("a/b", "a/b", true),
            ("a/b", "x/a/b", false),
            ("a/*", "a/b/c", true),
            ("a/*.py", "a/b/c.py", false),
            ("a/**", "a/b/c", true),
            ("a/**", "a", false),
            ("a/**/b", "a/b", true),
            ("a/**/b", "a/x/y/b", true),
            ("**/b", "b", true),
            ("**/b/c", "a/b/c", true),
            ("**", "a/b", true),
            ("*.py", "a/b.py", true),
            ("*.py", "a/b.pyc", false),
            ("t?st", "test", true),
            ("t?st", "tst", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]x]", "]", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
        ];
        for (glob, path, fits) in table {
            let read = Glob::read(glob).expect("a glob");
            let path = TreePath::new(path).expect("a path");
            assert_eq!(read.covers(&path), fits, "{glob} {path}");
        }
    }
}
