//! Python's tokens.

use num_bigint::BigInt;

use super::{ErrorKind, ExpressionError, error};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Name(String),
    Int(BigInt),
    Float(f64),
    /// `1j` or `b''`: a constant we have no value for.
    OtherConstant,
    Text(String),
    /// `f''`
    Formatted,
    Operator(&'static str),
    End,
}

#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) token: Token,
    pub(super) column: usize,
}

const OPERATORS: [&str; 38] = [
    "...", "**", "//", "<<", ">>", "<=", ">=", "==", "!=", ":=", "->", "+", "-", "*", "/", "%",
    "@", "&", "|", "^", "~", "<", ">", "(", ")", "[", "]", "{", "}", ",", ":", ".", "=", ";", "!",
    "?", "$", "`",
];

/// A chain of operators nests; this bounds how deep.
const MOST_TOKENS: usize = 2000;

pub(super) fn tokens(text: &str) -> Result<Vec<Placed>, ExpressionError> {
    let mut lexer = Lexer {
        chars: text.chars().collect(),
        at: 0,
    };
    lexer.run()
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
}

impl Lexer {
    fn run(&mut self) -> Result<Vec<Placed>, ExpressionError> {
        while self.peek() == Some('\n') {
            self.at += 1;
        }
        if matches!(self.peek(), Some(' ' | '\t')) {
            return Err(self.syntax("it begins with a blank"));
        }
        let mut found = Vec::new();
        let mut depth = 0_usize;
        loop {
            self.skip_blanks();
            let column = self.at + 1;
            let token = match self.peek() {
                None => Token::End,
                Some('\n' | '\r') => {
                    self.at += 1;
                    if depth == 0 && !self.only_blanks_left() {
                        return Err(self.syntax("a line ends before the expression does"));
                    }
                    continue;
                }
                Some('\\') if self.chars.get(self.at + 1) == Some(&'\n') => {
                    self.at += 2;
                    continue;
                }
                Some('"' | '\'') => self.string("")?,
                Some(c) if c.is_alphabetic() || c == '_' => self.word()?,
                Some(c) if c.is_ascii_digit() || (c == '.' && self.digit_at(self.at + 1)) => {
                    self.number()?
                }
                Some(_) => self.operator()?,
            };
            match &token {
                Token::Operator("(" | "[" | "{") => depth += 1,
                Token::Operator(")" | "]" | "}") => depth = depth.saturating_sub(1),
                _ => {}
            }
            let ended = token == Token::End;
            found.push(Placed { token, column });
            if found.len() > MOST_TOKENS {
                return Err(self.syntax("the expression is too long"));
            }
            if ended {
                return Ok(found);
            }
        }
    }

    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn digit_at(&self, at: usize) -> bool {
        self.chars.get(at).is_some_and(char::is_ascii_digit)
    }

    fn syntax(&self, detail: &str) -> ExpressionError {
        error(ErrorKind::Syntax, self.at + 1, detail)
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(' ' | '\t' | '\u{c}')) {
            self.at += 1;
        }
        if self.peek() == Some('#') {
            while self.peek().is_some_and(|c| c != '\n') {
                self.at += 1;
            }
        }
    }

    fn only_blanks_left(&self) -> bool {
        let rest: String = self.chars[self.at..].iter().collect();
        let code = |line: &str| {
            let line = line.trim();
            !line.is_empty() && !line.starts_with('#')
        };
        !rest.lines().any(code)
    }

    fn take_while(&mut self, test: impl Fn(char) -> bool) -> String {
        let start = self.at;
        while self.peek().is_some_and(&test) {
            self.at += 1;
        }
        self.chars[start..self.at].iter().collect()
    }

    fn word(&mut self) -> Result<Token, ExpressionError> {
        let word = self.take_while(|c| c.is_alphanumeric() || c == '_');
        let prefix = word.to_lowercase();
        let is_prefix = ["r", "u", "b", "f", "br", "rb", "fr", "rf"].contains(&prefix.as_str());
        if is_prefix && matches!(self.peek(), Some('"' | '\'')) {
            return self.string(&prefix);
        }
        Ok(Token::Name(word))
    }

    fn operator(&mut self) -> Result<Token, ExpressionError> {
        let rest: String = self.chars[self.at..].iter().take(3).collect();
        let operator = OPERATORS
            .iter()
            .find(|operator| rest.starts_with(*operator));
        match operator {
            Some(operator) => {
                self.at += operator.len();
                Ok(Token::Operator(operator))
            }
            None => Err(self.syntax("a character that Python does not know")),
        }
    }

    fn number(&mut self) -> Result<Token, ExpressionError> {
        let start = self.at;
        let token = self.digits()?;
        if matches!(self.peek(), Some('j' | 'J')) {
            self.at += 1;
            return Ok(Token::OtherConstant);
        }
        if self.peek().is_some_and(|c| c.is_alphanumeric() || c == '_') {
            self.at = start;
            return Err(self.syntax("not a number"));
        }
        Ok(token)
    }

    fn digits(&mut self) -> Result<Token, ExpressionError> {
        let second = self.chars.get(self.at + 1).map(char::to_ascii_lowercase);
        let radix = match (self.peek(), second) {
            (Some('0'), Some('x')) => 16,
            (Some('0'), Some('o')) => 8,
            (Some('0'), Some('b')) => 2,
            _ => return self.decimal(),
        };
        self.at += 2;
        let digits = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
        let clean = self.grouped(digits.strip_prefix('_').unwrap_or(&digits))?;
        BigInt::parse_bytes(clean.as_bytes(), radix)
            .map(Token::Int)
            .ok_or_else(|| self.syntax("not a number"))
    }

    fn decimal(&mut self) -> Result<Token, ExpressionError> {
        let digits = |c: char| c.is_ascii_digit() || c == '_';
        let whole = self.take_while(digits);
        let mut text = self.grouped(&whole)?;
        let mut is_float = false;
        if self.peek() == Some('.') {
            self.at += 1;
            is_float = true;
            let fraction = self.take_while(digits);
            text = format!("{text}.{}", self.grouped(&fraction)?);
        }
        if matches!(self.peek(), Some('e' | 'E')) {
            let signed = usize::from(matches!(self.chars.get(self.at + 1), Some('+' | '-')));
            if self.digit_at(self.at + 1 + signed) {
                is_float = true;
                self.at += 1;
                text.push('e');
                if signed == 1 {
                    text.extend(self.peek());
                    self.at += 1;
                }
                let exponent = self.take_while(digits);
                text += &self.grouped(&exponent)?;
            }
        }
        if is_float {
            let text = text.replacen("e", ".0e", usize::from(!text.contains('.')));
            let text = if text.starts_with('.') {
                format!("0{text}")
            } else {
                text
            };
            return text
                .parse()
                .map(Token::Float)
                .map_err(|_| self.syntax("not a number"));
        }
        if text.len() > 1 && text.starts_with('0') && text.bytes().any(|b| b != b'0') {
            return Err(self.syntax("a whole number cannot begin with 0; octal is `0o10`"));
        }
        text.parse()
            .map(Token::Int)
            .map_err(|_| self.syntax("not a number"))
    }

    /// Digits without the underscores between them.
    fn grouped(&self, digits: &str) -> Result<String, ExpressionError> {
        if digits.starts_with('_') || digits.ends_with('_') || digits.contains("__") {
            return Err(self.syntax("an underscore must stand between digits"));
        }
        Ok(digits.replace('_', ""))
    }

    fn string(&mut self, prefix: &str) -> Result<Token, ExpressionError> {
        let start = self.at;
        let quote = self.chars[self.at];
        let triple = self.chars.get(self.at..self.at + 3) == Some(&[quote; 3]);
        let width = if triple { 3 } else { 1 };
        self.at += width;
        let mut text = String::new();
        let raw = prefix.contains('r');
        loop {
            let Some(c) = self.peek() else {
                self.at = start;
                return Err(self.syntax("a string does not end"));
            };
            let closing = self.chars.get(self.at..self.at + width);
            if closing.is_some_and(|closing| closing.iter().all(|c| *c == quote)) {
                self.at += width;
                break;
            }
            match c {
                '\n' if !triple => {
                    self.at = start;
                    return Err(self.syntax("a string does not end"));
                }
                '\\' if raw => {
                    text.push('\\');
                    self.at += 1;
                    text.extend(self.peek());
                    self.at += 1;
                }
                '\\' => self.escape(&mut text)?,
                c => {
                    text.push(c);
                    self.at += 1;
                }
            }
        }
        Ok(match prefix {
            prefix if prefix.contains('f') => Token::Formatted,
            prefix if prefix.contains('b') => Token::OtherConstant,
            _ => Token::Text(text),
        })
    }

    fn escape(&mut self, text: &mut String) -> Result<(), ExpressionError> {
        self.at += 1;
        let Some(c) = self.peek() else {
            return Err(self.syntax("a string does not end"));
        };
        self.at += 1;
        let simple = match c {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'v' => '\u{b}',
            '\\' | '\'' | '"' => c,
            '\n' => return Ok(()),
            'x' => return self.code(2, text),
            'u' => return self.code(4, text),
            'U' => return self.code(8, text),
            '0'..='7' => {
                self.at -= 1;
                let mut code = 0;
                for _ in 0..3 {
                    let Some(digit) = self.peek().and_then(|c| c.to_digit(8)) else {
                        break;
                    };
                    code = code * 8 + digit;
                    self.at += 1;
                }
                text.extend(char::from_u32(code));
                return Ok(());
            }
            'N' => return Err(self.syntax("characters cannot be named here; write `\\u....`")),
            other => {
                text.push('\\'); // as Python keeps an escape it does not know
                other
            }
        };
        text.push(simple);
        Ok(())
    }

    fn code(&mut self, digits: usize, text: &mut String) -> Result<(), ExpressionError> {
        let hex: String = self.chars[self.at..].iter().take(digits).collect();
        let code = u32::from_str_radix(&hex, 16)
            .ok()
            .filter(|_| hex.len() == digits);
        let Some(c) = code.and_then(char::from_u32) else {
            return Err(self.syntax("an escape that is no character"));
        };
        self.at += digits;
        text.push(c);
        Ok(())
    }
}
