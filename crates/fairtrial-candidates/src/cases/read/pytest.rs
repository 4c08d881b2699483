//! The lines of our pytest plug-in. A process that dies leaves a line unfinished, which is dropped, and cases that began
//! and did not end.

use serde::Deserialize;

use super::super::case::{CaseResult, CaseStatus, ResultsFault};
use super::super::end::Ended;
use super::super::output::{Output, OutputReader};
use super::super::paths::Paths;
use super::super::recorded::Recorded;
use super::super::text::last_lines;
use super::Read;

const FORMAT: u32 = 1;

#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line {
    Session { format: u32 },
    Begin { id: String },
    End(Box<End>),
    Source { number: usize, text: String },
    Stuck { id: String, error: String },
    InternalError { error: String },
    Finish {},
}

#[derive(Deserialize)]
struct End {
    id: String,
    status: CaseStatus,
    duration: Option<f64>,
    #[serde(default)]
    stdout: String,
    dropped: Option<Dropped>,
    error: Option<String>,
    #[serde(default)]
    values: Vec<(String, Recorded)>,
    source: Option<usize>,
}

/// What the plug-in left out of the middle of an output.
#[derive(Deserialize)]
struct Dropped {
    bytes: u64,
    sha256: String,
}

/// `ended` says what became of a case that was running when its process ended.
pub(super) fn read(bytes: &[u8], ended: Ended, paths: &Paths) -> Result<Read, String> {
    let mut session = Session::new(paths);
    let whole = bytes
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |end| end + 1);
    let (lines, torn) = bytes.split_at(whole);
    let lines = lines
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty());
    for (at, line) in lines.enumerate() {
        let line = serde_json::from_slice(line)
            .map_err(|error| format!("line {} of the plug-in is damaged: {error}", at + 1))?;
        session.take(line)?;
    }
    // The last line has no end if the process was stopped while it wrote; whole or not, it may be read.
    if let Ok(line) = serde_json::from_slice(torn) {
        session.take(line)?;
    }
    session.finish(ended)
}

struct Session<'a> {
    paths: &'a Paths,
    read: Read,
    began: bool,
    finished: bool,
    running: Vec<String>,
    stuck: Vec<(String, String)>,
    internal_error: Option<String>,
}

impl<'a> Session<'a> {
    fn new(paths: &'a Paths) -> Self {
        Self {
            paths,
            read: Read::default(),
            began: false,
            finished: false,
            running: Vec::new(),
            stuck: Vec::new(),
            internal_error: None,
        }
    }

    fn take(&mut self, line: Line) -> Result<(), String> {
        match line {
            Line::Session { format: FORMAT } if !self.began => self.began = true,
            Line::Session { format: FORMAT } => {
                return Err("two sessions wrote one file".to_owned());
            }
            Line::Session { format } => {
                return Err(format!("the plug-in writes format {format}, not {FORMAT}"));
            }
            Line::Begin { id } => self.running.push(id),
            Line::End(end) => self.end(*end),
            Line::Source { number, text } if number == self.read.sources.len() => {
                self.read.sources.push(self.paths.text(&text).into_owned());
            }
            Line::Source { .. } => return Err("the plug-in's sources are out of order".to_owned()),
            Line::Stuck { id, error } => self.stuck.push((id, error)),
            Line::InternalError { error } => self.internal_error = Some(error),
            Line::Finish {} => self.finished = true,
        }
        Ok(())
    }

    fn end(&mut self, end: End) {
        if let Some(at) = self.running.iter().position(|id| *id == end.id) {
            self.running.remove(at);
        }
        let mut result = CaseResult {
            status: end.status,
            duration_s: end.duration,
            output: output(&end.stdout, end.dropped, self.paths),
            error: end.error.map(|error| self.error(&error)),
            values: Vec::new(),
            source: end
                .source
                .filter(|number| *number < self.read.sources.len()),
        };
        let values = end.values.into_iter();
        result.values = values
            .map(|(name, value)| (name, value.without(self.paths)))
            .collect();
        // A worker of xdist that ended itself with its case: the controller only sees it gone.
        let stuck = self.stuck.iter().position(|(id, _)| *id == end.id);
        if let Some(at) = stuck {
            let (_, error) = self.stuck.remove(at);
            result = self.stuck_case(&error);
        }
        let id = self.paths.text(&end.id).into_owned();
        self.read.add(&id, result);
    }

    fn finish(mut self, ended: Ended) -> Result<Read, String> {
        if !self.began {
            return Err("pytest did not load the plug-in, or was stopped before it did".to_owned());
        }
        for (id, error) in std::mem::take(&mut self.stuck) {
            self.running.retain(|running| *running != id);
            let result = self.stuck_case(&error);
            let id = self.paths.text(&id).into_owned();
            self.read.add(&id, result);
        }
        let running = std::mem::take(&mut self.running);
        let status = match ended {
            Ended::Timeout => CaseStatus::TimedOut,
            _ => CaseStatus::Crashed,
        };
        for id in &running {
            let error = "its process ended while it was running".to_owned();
            let result = CaseResult {
                error: Some(error),
                ..CaseResult::new(status)
            };
            self.read.add(&self.paths.text(id), result);
        }
        if !self.finished {
            self.read.fault = Some(ResultsFault::EndedEarly(running));
        } else if self.read.cases.is_empty()
            && let Some(error) = &self.internal_error
        {
            return Err(format!(
                "pytest had an internal error: {}",
                self.error(error)
            ));
        }
        Ok(self.read)
    }

    fn stuck_case(&self, error: &str) -> CaseResult {
        CaseResult {
            error: Some(self.error(error)),
            ..CaseResult::new(CaseStatus::TimedOut)
        }
    }

    fn error(&self, error: &str) -> String {
        last_lines(&self.paths.text(error))
    }
}

fn output(kept: &str, dropped: Option<Dropped>, paths: &Paths) -> Output {
    let Some(dropped) = dropped else {
        return Output::of(kept.as_bytes(), paths);
    };
    let mut reader = OutputReader::new(paths);
    let (head, tail) = kept.as_bytes().split_at(kept.len() / 2);
    reader.push(head);
    reader.leave_out(dropped.bytes, dropped.sha256.as_bytes());
    reader.push(tail);
    reader.finish()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FILE: &str = concat!(
        r#"{"event":"session","format":1,"pytest":"9.2.0","python":"3.11.7"}"#,
        "\n",
        r#"{"event":"begin","id":"t.py::a"}"#,
        "\n",
        r#"{"event":"source","number":0,"text":"def a(): ..."}"#,
        "\n",
        r#"{"event":"end","id":"t.py::a","status":"passed","duration":0.5,"stdout":"in /slot/1\n","values":[["v",["/slot/1",1.5]]],"source":0}"#,
        "\n",
        r#"{"event":"begin","id":"t.py::b"}"#,
        "\n",
        r#"{"event":"end","id":"t.py::b","status":"failed","duration":0.1,"error":"at /slot/1/t.py"}"#,
        "\n",
        r#"{"event":"finish","exit":1}"#,
        "\n",
    );

    fn paths() -> Paths {
        Paths::new([("/slot/1", "/repo")])
    }

    /// CA-48
    #[test]
    fn cases_have_what_the_plug_in_says_paths_replaced() {
        let found = read(FILE.as_bytes(), Ended::Finished, &paths()).expect("lines");
        assert_eq!(found.fault, None);
        assert_eq!(found.sources, ["def a(): ..."]);
        let a = &found.cases["t.py::a"];
        assert_eq!(
            (a.status, a.duration_s, a.source),
            (CaseStatus::Passed, Some(0.5), Some(0))
        );
        assert_eq!(a.output.text, "in /repo\n");
        let value = serde_json::to_string(&a.values).expect("JSON");
        assert_eq!(value, r#"[["v",["/repo",1.5]]]"#);
        let b = &found.cases["t.py::b"];
        assert_eq!(
            (b.status, b.error.as_deref()),
            (CaseStatus::Failed, Some("at /repo/t.py"))
        );
    }

    /// CA-48
    #[test]
    fn a_session_cut_anywhere_loses_only_the_case_that_was_running() {
        let b_begins = FILE
            .find(r#"{"event":"begin","id":"t.py::b"}"#)
            .expect("it is there");
        let b_ends = FILE.find(r#"{"event":"finish"#).expect("it is there");
        for end in b_begins + 32..b_ends - 1 {
            let found = read(&FILE.as_bytes()[..end], Ended::Finished, &paths()).expect("lines");
            assert_eq!(found.cases["t.py::a"].status, CaseStatus::Passed);
            assert_eq!(found.cases["t.py::b"].status, CaseStatus::Crashed, "{end}");
            assert_eq!(
                found.fault,
                Some(ResultsFault::EndedEarly(vec!["t.py::b".to_owned()]))
            );
        }
        let late = read(&FILE.as_bytes()[..b_ends - 9], Ended::Timeout, &paths()).expect("lines");
        assert_eq!(late.cases["t.py::b"].status, CaseStatus::TimedOut);
        let found = read(&FILE.as_bytes()[..b_ends], Ended::Finished, &paths()).expect("lines");
        assert_eq!(found.fault, Some(ResultsFault::EndedEarly(Vec::new())));
    }

    /// CA-52
    #[test]
    fn a_stuck_case_timed_out_whether_or_not_somebody_saw_it_go() {
        let session = r#"{"event":"session","format":1}"#;
        let begin = r#"{"event":"begin","id":"a"}"#;
        let stuck = r#"{"event":"stuck","id":"a","error":"stacks"}"#;
        let gone = r#"{"event":"end","id":"a","status":"crashed","duration":0.0,"error":"worker gw0 crashed"}"#;
        for lines in [
            vec![session, begin, stuck],
            vec![session, begin, stuck, gone],
        ] {
            let found = read(
                (lines.join("\n") + "\n").as_bytes(),
                Ended::Finished,
                &paths(),
            )
            .expect("lines");
            let case = &found.cases["a"];
            assert_eq!((found.cases.len(), case.status), (1, CaseStatus::TimedOut));
            assert_eq!(case.error.as_deref(), Some("stacks"));
        }
    }

    /// CA-48
    #[test]
    fn lines_that_no_plug_in_of_ours_wrote_are_no_results() {
        let session = r#"{"event":"session","format":1}"#;
        let table = [
            (String::new(), "did not load"),
            (
                r#"{"event":"begin","id":"a"}"#.to_owned() + "\n",
                "did not load",
            ),
            (
                r#"{"event":"session","format":2}"#.to_owned() + "\n",
                "format 2",
            ),
            (format!("{session}\n{session}\n"), "two sessions"),
            (format!("{session}\nnoise\n"), "line 2"),
            (format!("{session}\n{{\"event\":\"new\"}}\n"), "line 2"),
            (
                format!(
                    "{session}\n{}\n",
                    r#"{"event":"source","number":3,"text":""}"#
                ),
                "out of order",
            ),
            (
                format!(
                    "{session}\n{}\n{}\n",
                    r#"{"event":"internal_error","error":"why"}"#, r#"{"event":"finish","exit":3}"#
                ),
                "internal error: why",
            ),
        ];
        for (text, why) in table {
            let error = read(text.as_bytes(), Ended::Finished, &paths()).expect_err(&text);
            assert!(error.contains(why), "{error}");
        }
    }

    /// CA-51
    #[test]
    fn an_output_that_differs_where_it_was_cut_differs() {
        let dropped = |sha256: &str| {
            Some(Dropped {
                bytes: 9,
                sha256: sha256.to_owned(),
            })
        };
        let paths = Paths::default();
        let [one, other] = ["aa", "bb"].map(|digest| output("abyz", dropped(digest), &paths));
        assert_eq!((one.bytes, one.same(&other)), (13, false));
        assert!(one.same(&output("abyz", dropped("aa"), &paths)));
    }

    proptest! {
        /// CA-48
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..100), at in 0_usize..800) {
            let mut file = FILE.as_bytes().to_vec();
            let at = at.min(file.len());
            file.splice(at..at, bytes);
            let _any = read(&file, Ended::Finished, &paths());
        }
    }
}
