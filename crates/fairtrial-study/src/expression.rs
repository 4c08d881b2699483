//! Constraint expressions: a small part of Python's, read and evaluated without Python.
//!
//! What Python can parse and we do not evaluate becomes a node that fails when it is reached, as in DRE; natively it is
//! refused before any condition is looked at.

mod arithmetic;
mod check;
mod eval;
mod format;
mod item;
mod lexer;
mod parser;

use std::fmt;

use crate::compat::Compat;
use crate::value::Value;

/// A parsed expression.
#[derive(Clone, Debug)]
pub struct Expression {
    root: Node,
}

impl Expression {
    /// Reads Python's expression syntax.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        let root = parser::parse(text)?;
        Ok(Self { root })
    }

    /// Refuses what no condition could make valid: natively unknown names and all that is not supported.
    pub(crate) fn check(&self, factors: &[&str], blocks: &[&str]) -> Result<(), ExpressionError> {
        check::check(&self.root, factors, blocks)
    }

    /// The same, with the names of a scope.
    pub fn check_names(&self, scope: &Scope<'_>) -> Result<(), ExpressionError> {
        let factors: Vec<&str> = scope.factors.iter().map(|(name, _)| *name).collect();
        let blocks: Vec<&str> = scope.blocks.iter().map(|(name, _)| *name).collect();
        self.check(&factors, &blocks)
    }

    /// Whether the rule holds under an assignment.
    pub fn holds(&self, scope: &Scope<'_>, compat: Compat) -> Result<bool, ExpressionError> {
        eval::truth(&self.root, scope, compat)
    }
}

/// What names mean: the assignment of one condition.
#[derive(Clone, Debug)]
pub struct Scope<'a> {
    /// Factors and their values.
    pub factors: Vec<(&'a str, &'a Value)>,
    /// Blocks and their values.
    pub blocks: Vec<(&'a str, &'a Value)>,
}

/// Why an expression cannot be read or evaluated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ExpressionError {
    /// Its kind.
    pub kind: ErrorKind,
    /// The Python name of the node or operator that is not supported; else empty.
    pub node: &'static str,
    /// Column in the expression, from 1.
    pub column: usize,
    /// What was found.
    pub detail: String,
}

impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, column) = (self.kind, self.column);
        write!(
            f,
            "{kind} at column {column} of the expression: {}",
            self.detail
        )
    }
}

/// Kinds of errors, named as programs know them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Not Python.
    Syntax,
    /// The value is no boolean.
    NotBoolean,
    /// No factor or block of that name.
    UnknownName,
    /// Python, but not evaluated here.
    UnsupportedNode,
    /// A comparison that is not evaluated here.
    UnsupportedOperator,
    /// What is called is no plain name.
    CallNotAName,
    /// What is called is no allowed function.
    CallNotAllowed,
    /// A call with a keyword argument.
    KeywordArgument,
    /// `{**x}`.
    DictUnpacking,
    /// Values that do not go together.
    TypeError,
    /// No item at that position.
    IndexError,
    /// No item of that key.
    KeyError,
    /// Division by zero.
    ZeroDivision,
}

impl ErrorKind {
    /// As programs know it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Syntax => "syntax",
            Self::NotBoolean => "not_boolean",
            Self::UnknownName => "unknown_name",
            Self::UnsupportedNode => "unsupported_node",
            Self::UnsupportedOperator => "unsupported_operator",
            Self::CallNotAName => "call_not_a_name",
            Self::CallNotAllowed => "call_not_allowed",
            Self::KeywordArgument => "keyword_argument",
            Self::DictUnpacking => "dict_unpacking",
            Self::TypeError => "type_error",
            Self::IndexError => "index_error",
            Self::KeyError => "key_error",
            Self::ZeroDivision => "zero_division",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn error(kind: ErrorKind, column: usize, detail: impl Into<String>) -> ExpressionError {
    ExpressionError {
        kind,
        node: "",
        column,
        detail: detail.into(),
    }
}

/// A part of an expression and where it begins.
#[derive(Clone, Debug)]
struct Node {
    column: usize,
    part: Part,
}

#[derive(Clone, Debug)]
enum Part {
    Constant(item::Item),
    Name(String),
    List(Vec<Node>),
    Tuple(Vec<Node>),
    /// A missing key is `**value`.
    Dict(Vec<(Option<Node>, Node)>),
    Attribute(Box<Node>, String),
    Subscript(Box<Node>, Box<Node>),
    /// `and` if true, else `or`.
    Logic(bool, Vec<Node>),
    Not(Box<Node>),
    /// Unary minus if true, else plus.
    Sign(bool, Box<Node>),
    Arithmetic(Arithmetic, Box<Node>, Box<Node>),
    Compare(Box<Node>, Vec<(Comparison, Node)>),
    Call {
        function: Box<Node>,
        arguments: Vec<Node>,
        has_keywords: bool,
    },
    /// Python's name of what is not supported.
    Unsupported(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    NotIn,
    Is,
    IsNot,
}

fn unsupported(node: &'static str, column: usize) -> ExpressionError {
    ExpressionError {
        kind: ErrorKind::UnsupportedNode,
        node,
        column,
        detail: format!("`{node}` is not part of the language of constraints"),
    }
}

/// Functions an expression may call.
const FUNCTIONS: [&str; 5] = ["len", "int", "float", "str", "bool"];

/// The name of the allowed function that is called.
fn callee(
    function: &Node,
    has_keywords: bool,
    column: usize,
) -> Result<&'static str, ExpressionError> {
    let Part::Name(name) = &function.part else {
        let detail = "only functions can be called, by their name";
        return Err(error(ErrorKind::CallNotAName, column, detail));
    };
    let Some(allowed) = FUNCTIONS.iter().find(|allowed| *allowed == name) else {
        let detail = format!("`{name}` cannot be called; only len, int, float, str and bool can");
        return Err(error(ErrorKind::CallNotAllowed, column, detail));
    };
    if has_keywords {
        let detail = format!("`{allowed}` takes no keyword arguments here");
        return Err(error(ErrorKind::KeywordArgument, column, detail));
    }
    Ok(allowed)
}

/// Refuses comparisons by identity.
fn comparable(comparison: Comparison, column: usize) -> Result<(), ExpressionError> {
    let node = match comparison {
        Comparison::Is => "Is",
        Comparison::IsNot => "IsNot",
        _ => return Ok(()),
    };
    Err(ExpressionError {
        kind: ErrorKind::UnsupportedOperator,
        node,
        column,
        detail: "values are compared with `==` and `!=`".into(),
    })
}
