//! Commands.

use fairtrial_document::node::Content;

use super::Field;
use crate::spec::command::Command;

impl Field<'_, '_> {
    /// A list is argv, a text is for `sh -c`.
    pub(in crate::spec) fn command(self) -> Option<Command> {
        match &self.node.content {
            Content::List(_) => self.argv().map(Command::Argv),
            _ if self.node.as_text().is_none() => {
                self.wrong_type("a list of texts, or text for `sh -c`", "")
            }
            _ => match self.text()? {
                text if text.trim().is_empty() => self.refuse("blank", "must not be blank", ""),
                text => Some(Command::Shell(text)),
            },
        }
    }

    fn argv(self) -> Option<Vec<String>> {
        let items = self.items()?;
        let argv: Vec<_> = items.iter().filter_map(Self::argument).collect();
        match argv.as_slice() {
            [] if items.is_empty() => self.refuse("empty", "must not be empty", "name a program"),
            [program, ..] if program.trim().is_empty() => {
                items[0].refuse("blank", "names no program", "")
            }
            _ => Some(argv),
        }
    }

    /// To YAML `{loops}` without quotes is a mapping.
    fn argument(&self) -> Option<String> {
        match &self.node.content {
            Content::Map(_) => self.wrong_type("text", "quote it, as in `\"{loops}\"`"),
            _ => self.text(),
        }
    }
}
