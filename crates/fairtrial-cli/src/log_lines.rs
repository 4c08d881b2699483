//! What libraries have to say on standard error: a server of a cluster that is away, and that it is back; what users can
//! do about their settings.

use std::io::{self, Write};

use fairtrial_exec::ADVICE;
use log::{Level, LevelFilter, Log, Metadata, Record};

use crate::terminal::Shown;

struct Lines;

impl Log for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let target = metadata.target();
        target.starts_with("fairtrial_cluster") || target == ADVICE
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let kind = match record.level() {
            Level::Error => "error: ",
            Level::Warn => "warning: ",
            _ => "",
        };
        let line = writeln!(Shown::on(io::stderr()), "{kind}{}", record.args());
        line.unwrap_or_default(); // nobody is there to be told
    }

    fn flush(&self) {}
}

/// From now on they are shown.
pub(crate) fn show() {
    if log::set_logger(&Lines).is_ok() {
        log::set_max_level(LevelFilter::Info);
    }
}
