//! Python's expression grammar: what binds how, and what is only recognised.

mod atoms;

use super::lexer::{Placed, Token, tokens};
use super::{Arithmetic, Comparison, ErrorKind, ExpressionError, Node, Part, error};

/// Deeper nesting than people write would exhaust the stack.
const DEEPEST: usize = 60;

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
