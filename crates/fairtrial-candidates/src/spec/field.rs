//! One value at a time, read as what its key must hold.

mod command;
mod number;
mod text;

use fairtrial_document::fault::{listed, suggestion};
use fairtrial_document::node::{Content, Node};
use fairtrial_document::value::Value;

use super::reader::{Reader, Record};
use super::worded::Worded;

/// A value with the name users know it by.
pub(super) struct Field<'n, 'r> {
    pub(super) reader: &'r Reader,
    pub(super) name: String,
    pub(super) node: &'n Node,
}

impl<'n, 'r> Field<'n, 'r> {
    pub(super) fn fault(
        &self,
        code: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.reader.fault(&self.node.place, code, message, hint);
    }

    pub(super) fn wrong_type<T>(&self, expected: &str, hint: &str) -> Option<T> {
        let message = format!(
            "`{}` must be {expected}, not {}",
            self.name,
            self.node.kind()
        );
        self.fault("type", message, hint);
        None
    }

    /// A value of the right kind that will not do.
    pub(super) fn refuse<T>(&self, code: &'static str, why: &str, hint: &str) -> Option<T> {
        self.fault(code, format!("`{}` {why}", self.name), hint);
        None
    }

    /// As others put it, who say what to do, too.
    pub(super) fn object<T>(&self, code: &'static str, problem: &str) -> Option<T> {
        const LONGEST: usize = 300;
        let end = problem.char_indices().nth(LONGEST);
        let problem = match end {
            Some((end, _)) => format!("{}...", &problem[..end]),
            None => problem.to_owned(),
        };
        self.fault(code, format!("`{}`: {problem}", self.name), "");
        None
    }

    pub(super) fn record(&self, keys: &'static [&'static str]) -> Record<'n, 'r> {
        self.reader
            .record(self.node, &format!("`{}`", self.name), keys)
    }

    /// The items of a list.
    pub(super) fn items(&self) -> Option<Vec<Self>> {
        match &self.node.content {
            Content::List(items) => {
                let items = items.iter().enumerate();
                Some(items.map(|(at, node)| self.item(at, node)).collect())
            }
            _ => self.wrong_type("a list", "write `[...]` or `- ` items"),
        }
    }

    fn item(&self, at: usize, node: &'n Node) -> Self {
        Self {
            reader: self.reader,
            name: format!("{}[{at}]", self.name),
            node,
        }
    }

    /// The items of a list, or the one value that stands for a list of one.
    pub(super) fn one_or_many(&self) -> Vec<Self> {
        match &self.node.content {
            Content::List(items) => {
                let items = items.iter().enumerate();
                items.map(|(at, node)| self.item(at, node)).collect()
            }
            _ => vec![Self {
                reader: self.reader,
                name: self.name.clone(),
                node: self.node,
            }],
        }
    }

    pub(super) fn flag(self) -> Option<bool> {
        match self.node.content {
            Content::Scalar(Value::Bool(truth)) => Some(truth),
            _ => self.wrong_type("a boolean", "write true or false"),
        }
    }

    /// A word as it was written: `off` is a boolean in YAML 1.1, and a word here.
    pub(super) fn written(&self) -> Option<&'n str> {
        let plain = self.node.doubt.as_deref();
        self.node
            .as_text()
            .or_else(|| plain.map(|doubt| doubt.text.as_str()))
    }

    /// Whether it says `off`, which programs that read YAML hand on as false.
    pub(super) fn is_off(&self) -> bool {
        let is_false = matches!(self.node.content, Content::Scalar(Value::Bool(false)));
        is_false || self.written() == Some("off")
    }

    /// One of a few words.
    pub(super) fn word<T: Worded>(self) -> Option<T> {
        let Some(written) = self.written() else {
            let words = listed(T::WORDS.iter().map(|(word, _)| *word));
            return self.wrong_type("a word", &format!("one of {words}"));
        };
        let found = T::WORDS.iter().find(|(word, _)| *word == written);
        if found.is_none() {
            self.unknown_word(written, T::WORDS.iter().map(|(word, _)| *word));
        }
        found.map(|(_, choice)| *choice)
    }

    pub(super) fn unknown_word<'a>(&self, word: &str, known: impl IntoIterator<Item = &'a str>) {
        let shown = fairtrial_document::fault::short(word);
        let message = format!("`{}` cannot be `{shown}`", self.name);
        self.fault("choice", message, suggestion(word, known));
    }
}
