//! What binds tightest: literals, brackets, calls and subscripts.

use super::super::item::Item;
use super::super::lexer::Token;
use super::super::{ErrorKind, ExpressionError, Node, Part, error};
use super::{Parsed, Parser};

const KEYWORDS: [&str; 35] = [
    "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del", "elif",
    "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda",
    "nonlocal", "not", "or", "pass", "raise", "return", "try", "while", "with", "yield", "True",
    "False", "None",
];

impl Parser {
    pub(super) fn call(&mut self, function: Node) -> Result<Part, ExpressionError> {
        let mut arguments = Vec::new();
        let mut has_keywords = false;
        while !self.skip(")") {
            if self.skip("**") {
                self.expression()?;
                has_keywords = true;
            } else {
                let argument = self.named()?;
                if matches!(argument.part, Part::Name(_)) && self.skip("=") {
                    self.expression()?;
                    has_keywords = true;
                } else if self.is_comprehension() {
                    let column = argument.column;
                    self.comprehension()?;
                    arguments.push(Self::node(column, Part::Unsupported("GeneratorExp")));
                } else {
                    arguments.push(argument);
                }
            }
            if !self.is_operator(")") {
                self.expect(",")?;
            }
        }
        Ok(Part::Call {
            function: Box::new(function),
            arguments,
            has_keywords,
        })
    }

    pub(super) fn subscript(&mut self) -> Parsed {
        let column = self.column();
        let mut items = Vec::new();
        let mut is_tuple = false;
        while !self.is_operator("]") {
            items.push(self.slice()?);
            if !self.skip(",") {
                break;
            }
            is_tuple = true;
        }
        match (items.pop(), is_tuple) {
            (None, _) => Err(self.syntax("an index was expected")),
            (Some(one), false) => Ok(one),
            (Some(last), true) => {
                items.push(last);
                Ok(Self::node(column, Part::Tuple(items)))
            }
        }
    }

    fn slice(&mut self) -> Parsed {
        let column = self.column();
        let mut is_slice = false;
        let mut index = None;
        loop {
            if self.skip(":") {
                is_slice = true;
            } else if matches!(self.peek(), Token::Operator("]" | ",")) {
                break;
            } else if index.is_none() || is_slice {
                index = Some(self.named()?);
            } else {
                return Err(self.syntax("`]` was expected"));
            }
        }
        match index {
            Some(index) if !is_slice => Ok(index),
            None if !is_slice => Err(self.syntax("an index was expected")),
            _ => Ok(Self::node(column, Part::Unsupported("Slice"))),
        }
    }

    pub(super) fn atom(&mut self) -> Parsed {
        let column = self.column();
        let token = self.peek().clone();
        self.advance();
        let part = match token {
            Token::Int(int) => Part::Constant(Item::Int(int)),
            Token::Float(float) => Part::Constant(Item::Float(float)),
            Token::OtherConstant | Token::Operator("...") => Part::Unsupported("Constant"),
            Token::Text(_) | Token::Formatted => return self.strings(token, column),
            Token::Name(name) => match name.as_str() {
                "True" => Part::Constant(Item::Bool(true)),
                "False" => Part::Constant(Item::Bool(false)),
                "None" => Part::Constant(Item::Null),
                keyword if KEYWORDS.contains(&keyword) => {
                    self.at -= 1;
                    return Err(self.syntax("a value was expected"));
                }
                _ => Part::Name(name),
            },
            Token::Operator("(") => return self.parenthesis(column),
            Token::Operator("[") => return self.list(column),
            Token::Operator("{") => return self.braces(column),
            _ => {
                let detail = "a value was expected";
                return Err(error(ErrorKind::Syntax, column, detail));
            }
        };
        Ok(Self::node(column, part))
    }

    /// Strings that stand side by side are one.
    fn strings(&mut self, first: Token, column: usize) -> Parsed {
        let mut text = String::new();
        let mut formatted = false;
        let mut next = first;
        loop {
            match next {
                Token::Text(part) => text += &part,
                _ => formatted = true,
            }
            next = match self.peek() {
                Token::Text(_) | Token::Formatted => self.peek().clone(),
                _ => break,
            };
            self.advance();
        }
        let part = match formatted {
            true => Part::Unsupported("JoinedStr"),
            false => Part::Constant(Item::Text(text)),
        };
        Ok(Self::node(column, part))
    }

    fn parenthesis(&mut self, column: usize) -> Parsed {
        if self.skip(")") {
            return Ok(Self::node(column, Part::Tuple(Vec::new())));
        }
        if self.skip_word("yield") {
            return Ok(Self::node(column, Part::Unsupported("Yield")));
        }
        let first = self.named()?;
        if self.is_comprehension() {
            self.comprehension()?;
            self.expect(")")?;
            return Ok(Self::node(column, Part::Unsupported("GeneratorExp")));
        }
        if !self.is_operator(",") {
            self.expect(")")?;
            return match first.part {
                Part::Unsupported("Starred") => Err(error(
                    ErrorKind::Syntax,
                    first.column,
                    "a starred expression stands alone",
                )),
                _ => Ok(first),
            };
        }
        let items = self.rest_of_items(first, ")")?;
        Ok(Self::node(column, Part::Tuple(items)))
    }

    fn list(&mut self, column: usize) -> Parsed {
        if self.skip("]") {
            return Ok(Self::node(column, Part::List(Vec::new())));
        }
        let first = self.named()?;
        if self.is_comprehension() {
            self.comprehension()?;
            self.expect("]")?;
            return Ok(Self::node(column, Part::Unsupported("ListComp")));
        }
        let items = self.rest_of_items(first, "]")?;
        Ok(Self::node(column, Part::List(items)))
    }

    fn rest_of_items(&mut self, first: Node, end: &str) -> Result<Vec<Node>, ExpressionError> {
        let mut items = vec![first];
        while self.skip(",") {
            if self.is_operator(end) {
                break;
            }
            items.push(self.named()?);
        }
        self.expect(end)?;
        Ok(items)
    }

    fn braces(&mut self, column: usize) -> Parsed {
        let mut entries = Vec::new();
        let mut is_set = false;
        while !self.skip("}") {
            if self.skip("**") {
                let value = self.binary(0)?;
                entries.push((None, value));
            } else {
                let key = self.named()?;
                if entries.is_empty() && !self.is_operator(":") {
                    is_set = true;
                }
                let value = match is_set {
                    true => key.clone(),
                    false => {
                        self.expect(":")?;
                        self.expression()?
                    }
                };
                entries.push((Some(key), value));
            }
            if self.is_comprehension() {
                self.comprehension()?;
                self.expect("}")?;
                let name = if is_set { "SetComp" } else { "DictComp" };
                return Ok(Self::node(column, Part::Unsupported(name)));
            }
            if !self.is_operator("}") {
                self.expect(",")?;
            }
        }
        let part = match is_set {
            true => Part::Unsupported("Set"),
            false => Part::Dict(entries),
        };
        Ok(Self::node(column, part))
    }

    fn is_comprehension(&self) -> bool {
        self.is_word("for") || self.is_word("async")
    }

    fn comprehension(&mut self) -> Result<(), ExpressionError> {
        while self.is_comprehension() {
            self.skip_word("async");
            if !self.skip_word("for") {
                return Err(self.syntax("`for` was expected"));
            }
            self.binary(0)?;
            while self.skip(",") {
                if self.is_word("in") {
                    break;
                }
                self.binary(0)?;
            }
            if !self.skip_word("in") {
                return Err(self.syntax("`in` was expected"));
            }
            self.disjunction()?;
            while self.skip_word("if") {
                self.disjunction()?;
            }
        }
        Ok(())
    }
}
