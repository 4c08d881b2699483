//! Python's expression grammar: what binds how, and what is only recognised.

use super::item::Item;
use super::lexer::{Placed, Token, tokens};
use super::{Arithmetic, Comparison, ErrorKind, ExpressionError, Node, Part, error};

/// Deeper nesting than people write would exhaust the stack.
const DEEPEST: usize = 60;

const KEYWORDS: [&str; 35] = [
    "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del", "elif",
    "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda",
    "nonlocal", "not", "or", "pass", "raise", "return", "try", "while", "with", "yield", "True",
    "False", "None",
];

pub(super) fn parse(text: &str) -> Result<Node, ExpressionError> {
    let mut parser = Parser {
        tokens: tokens(text)?,
        at: 0,
        depth: 0,
    };
    let node = parser.tuple_or_one()?;
    match parser.peek() {
        Token::End => Ok(node),
        _ => Err(parser.syntax("something follows the expression")),
    }
}

struct Parser {
    tokens: Vec<Placed>,
    at: usize,
    depth: usize,
}

type Parsed = Result<Node, ExpressionError>;

impl Parser {
    fn peek(&self) -> &Token {
        &self.tokens[self.at].token
    }

    fn column(&self) -> usize {
        self.tokens[self.at].column
    }

    fn syntax(&self, detail: &str) -> ExpressionError {
        error(ErrorKind::Syntax, self.column(), detail)
    }

    fn advance(&mut self) {
        // The last token is the end, which nothing passes.
        self.at = (self.at + 1).min(self.tokens.len() - 1);
    }

    fn is_operator(&self, operator: &str) -> bool {
        matches!(self.peek(), Token::Operator(found) if *found == operator)
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Token::Name(found) if found == word)
    }

    fn skip(&mut self, operator: &str) -> bool {
        let found = self.is_operator(operator);
        if found {
            self.advance();
        }
        found
    }

    fn skip_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        if found {
            self.advance();
        }
        found
    }

    fn expect(&mut self, operator: &str) -> Result<(), ExpressionError> {
        if self.skip(operator) {
            return Ok(());
        }
        Err(self.syntax(&format!("`{operator}` was expected")))
    }

    fn node(column: usize, part: Part) -> Node {
        Node { column, part }
    }

    /// `a` or `a, b`, without parentheses.
    fn tuple_or_one(&mut self) -> Parsed {
        let column = self.column();
        let first = self.starred_or_expression()?;
        if !self.is_operator(",") {
            return Ok(first);
        }
        let mut items = vec![first];
        while self.skip(",") {
            if matches!(self.peek(), Token::End | Token::Operator(")" | "]")) {
                break;
            }
            items.push(self.starred_or_expression()?);
        }
        Ok(Self::node(column, Part::Tuple(items)))
    }

    fn starred_or_expression(&mut self) -> Parsed {
        let column = self.column();
        if self.skip("*") {
            self.binary(0)?;
            return Ok(Self::node(column, Part::Unsupported("Starred")));
        }
        self.expression()
    }

    /// An expression that may be `name := value`, as inside brackets.
    fn named(&mut self) -> Parsed {
        let column = self.column();
        let node = self.starred_or_expression()?;
        if matches!(node.part, Part::Name(_)) && self.skip(":=") {
            self.expression()?;
            return Ok(Self::node(column, Part::Unsupported("NamedExpr")));
        }
        Ok(node)
    }

    fn expression(&mut self) -> Parsed {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.syntax("nested too deeply"));
        }
        let node = self.conditional();
        self.depth -= 1;
        node
    }

    fn conditional(&mut self) -> Parsed {
        let column = self.column();
        if self.skip_word("lambda") {
            return self.lambda(column);
        }
        let node = self.disjunction()?;
        if !self.skip_word("if") {
            return Ok(node);
        }
        self.disjunction()?;
        if !self.skip_word("else") {
            return Err(self.syntax("`else` was expected"));
        }
        self.expression()?;
        Ok(Self::node(column, Part::Unsupported("IfExp")))
    }

    fn lambda(&mut self, column: usize) -> Parsed {
        while !self.is_operator(":") {
            match self.peek() {
                Token::Name(_) | Token::Operator("*" | "**" | "," | "/") => self.advance(),
                Token::Operator("=") => {
                    self.advance();
                    self.expression()?;
                }
                _ => return Err(self.syntax("`:` was expected")),
            }
        }
        self.advance();
        self.expression()?;
        Ok(Self::node(column, Part::Unsupported("Lambda")))
    }

    fn disjunction(&mut self) -> Parsed {
        self.logic("or", false, Self::conjunction)
    }

    fn conjunction(&mut self) -> Parsed {
        self.logic("and", true, Self::inversion)
    }

    fn logic(&mut self, word: &str, is_and: bool, operand: fn(&mut Self) -> Parsed) -> Parsed {
        let column = self.column();
        let first = operand(self)?;
        if !self.is_word(word) {
            return Ok(first);
        }
        let mut operands = vec![first];
        while self.skip_word(word) {
            operands.push(operand(self)?);
        }
        Ok(Self::node(column, Part::Logic(is_and, operands)))
    }

    fn inversion(&mut self) -> Parsed {
        let column = self.column();
        // A loop, since `not not not ...` may be long.
        let mut times = 0_usize;
        while self.skip_word("not") {
            times += 1;
        }
        let mut node = self.comparison()?;
        if times > DEEPEST {
            return Err(self.syntax("nested too deeply"));
        }
        for _ in 0..times {
            node = Self::node(column, Part::Not(Box::new(node)));
        }
        Ok(node)
    }

    fn comparison(&mut self) -> Parsed {
        let column = self.column();
        let first = self.binary(0)?;
        let mut links = Vec::new();
        while let Some(comparison) = self.comparison_operator()? {
            links.push((comparison, self.binary(0)?));
        }
        if links.is_empty() {
            return Ok(first);
        }
        Ok(Self::node(column, Part::Compare(Box::new(first), links)))
    }

    fn comparison_operator(&mut self) -> Result<Option<Comparison>, ExpressionError> {
        let comparison = match self.peek() {
            Token::Operator("==") => Comparison::Equal,
            Token::Operator("!=") => Comparison::Unequal,
            Token::Operator("<") => Comparison::Less,
            Token::Operator("<=") => Comparison::LessOrEqual,
            Token::Operator(">") => Comparison::Greater,
            Token::Operator(">=") => Comparison::GreaterOrEqual,
            Token::Name(word) if word == "in" => Comparison::In,
            Token::Name(word) if word == "is" => {
                self.advance();
                let negated = self.skip_word("not");
                return Ok(Some(if negated {
                    Comparison::IsNot
                } else {
                    Comparison::Is
                }));
            }
            Token::Name(word) if word == "not" => {
                self.advance();
                if !self.is_word("in") {
                    return Err(self.syntax("`in` was expected"));
                }
                Comparison::NotIn
            }
            _ => return Ok(None),
        };
        self.advance();
        Ok(Some(comparison))
    }

    /// Operators from `|` (0) to `*` (5); each level binds tighter than the one before.
    fn binary(&mut self, level: usize) -> Parsed {
        const LEVELS: [&[&str]; 6] = [
            &["|"],
            &["^"],
            &["&"],
            &["<<", ">>"],
            &["+", "-"],
            &["*", "/", "//", "%", "@"],
        ];
        let Some(operators) = LEVELS.get(level) else {
            return self.factor();
        };
        let column = self.column();
        let mut left = self.binary(level + 1)?;
        loop {
            let operator = match self.peek() {
                Token::Operator(operator) if operators.contains(operator) => *operator,
                _ => return Ok(left),
            };
            self.advance();
            let right = self.binary(level + 1)?;
            let part = match arithmetic(operator) {
                Some(arithmetic) => Part::Arithmetic(arithmetic, Box::new(left), Box::new(right)),
                None => Part::Unsupported("BinOp"),
            };
            left = Self::node(column, part);
        }
    }

    fn factor(&mut self) -> Parsed {
        let column = self.column();
        let mut signs = Vec::new();
        while let Token::Operator(sign @ ("-" | "+" | "~")) = self.peek() {
            signs.push(*sign);
            self.advance();
        }
        if signs.len() > DEEPEST {
            return Err(self.syntax("nested too deeply"));
        }
        let mut node = self.power()?;
        for sign in signs.into_iter().rev() {
            let part = match sign {
                "~" => Part::Unsupported("UnaryOp"),
                sign => Part::Sign(sign == "-", Box::new(node)),
            };
            node = Self::node(column, part);
        }
        Ok(node)
    }

    fn power(&mut self) -> Parsed {
        let column = self.column();
        if self.skip_word("await") {
            self.primary()?;
            return Ok(Self::node(column, Part::Unsupported("Await")));
        }
        let base = self.primary()?;
        if !self.skip("**") {
            return Ok(base);
        }
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.syntax("nested too deeply"));
        }
        self.factor()?;
        self.depth -= 1;
        Ok(Self::node(column, Part::Unsupported("BinOp")))
    }

    fn primary(&mut self) -> Parsed {
        let column = self.column();
        let mut node = self.atom()?;
        let mut parts = 0;
        loop {
            let part = if self.skip(".") {
                let Token::Name(name) = self.peek().clone() else {
                    return Err(self.syntax("a name was expected"));
                };
                self.advance();
                Part::Attribute(Box::new(node), name)
            } else if self.skip("(") {
                self.call(node)?
            } else if self.skip("[") {
                let index = self.subscript()?;
                self.expect("]")?;
                Part::Subscript(Box::new(node), Box::new(index))
            } else {
                return Ok(node);
            };
            parts += 1;
            if parts > DEEPEST {
                return Err(self.syntax("nested too deeply"));
            }
            node = Self::node(column, part);
        }
    }

    fn call(&mut self, function: Node) -> Result<Part, ExpressionError> {
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

    fn subscript(&mut self) -> Parsed {
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

    fn atom(&mut self) -> Parsed {
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

fn arithmetic(operator: &str) -> Option<Arithmetic> {
    match operator {
        "+" => Some(Arithmetic::Add),
        "-" => Some(Arithmetic::Subtract),
        "*" => Some(Arithmetic::Multiply),
        "/" => Some(Arithmetic::Divide),
        "%" => Some(Arithmetic::Modulo),
        _ => None,
    }
}
