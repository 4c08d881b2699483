//! The lines of our pytest plug-in. A process that dies leaves a line unfinished, which is dropped, and cases that began
//! and did not end.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::super::case::{CaseResult, CaseStatus, ResultsFault};
use super::super::end::Ended;
use super::super::output::{Output, OutputReader};
use super::super::paths::Paths;
use super::super::recorded::Recorded;
use super::super::text::{clipped, last_lines};
use super::Read;

const FORMAT: u32 = 1;

/// A line of at most so many bytes is read: values become many times larger than their text.
const MOST_LINE_BYTES: usize = 16 << 20;
/// Names of running cases that are kept.
const MOST_RUNNING: usize = 50;
const MOST_SOURCE_CHARACTERS: usize = 16 << 10;

enum Line {
    Session(Format),
    Begin(Named),
    End(Box<End>),
    Source(Source),
    Stuck(Stuck),
    InternalError(Said),
    Finish,
}

#[derive(Deserialize)]
struct Kind {
    event: String,
}

#[derive(Deserialize)]
struct Format {
    format: u32,
}

#[derive(Deserialize)]
struct Named {
    id: String,
}

#[derive(Deserialize)]
struct Source {
    number: usize,
    text: String,
}

#[derive(Deserialize)]
struct Stuck {
    id: String,
    error: String,
}

#[derive(Deserialize)]
struct Said {
    error: String,
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

impl Line {
    /// Looks at the kind first, then reads a line of that kind: an enum of serde's would hold it all in between.
    fn read(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        use serde::de::Error as _;
        use serde_json::{Error, from_slice};
        if bytes.len() > MOST_LINE_BYTES {
            return Err(Error::custom("it is longer than 16 MiB"));
        }
        let Kind { event } = from_slice(bytes)?;
        Ok(match &*event {
            "session" => Self::Session(from_slice(bytes)?),
            "begin" => Self::Begin(from_slice(bytes)?),
            "end" => Self::End(Box::new(from_slice(bytes)?)),
            "source" => Self::Source(from_slice(bytes)?),
            "stuck" => Self::Stuck(from_slice(bytes)?),
            "internal_error" => Self::InternalError(from_slice(bytes)?),
            "finish" => Self::Finish,
            _ => return Err(Error::custom(format!("`{event}` is no event"))),
        })
    }
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
        let line = Line::read(line)
            .map_err(|error| format!("line {} of the plug-in is damaged: {error}", at + 1))?;
        session.take(line)?;
    }
    // The last line has no end if the process was stopped while it wrote; whole or not, it may be read.
    if let Ok(line) = Line::read(torn) {
        session.take(line)?;
    }
    session.finish(ended)
}

struct Session<'a> {
    paths: &'a Paths,
    read: Read,
    began: bool,
    finished: bool,
    /// How often each began and did not end.
    running: BTreeMap<String, u32>,
    stuck: BTreeMap<String, String>,
    internal_error: Option<String>,
}

impl<'a> Session<'a> {
    fn new(paths: &'a Paths) -> Self {
        Self {
            paths,
            read: Read::default(),
            began: false,
            finished: false,
            running: BTreeMap::new(),
            stuck: BTreeMap::new(),
            internal_error: None,
        }
    }

    fn take(&mut self, line: Line) -> Result<(), String> {
        match line {
            Line::Session(Format { format: FORMAT }) if !self.began => self.began = true,
            Line::Session(Format { format: FORMAT }) => {
                return Err("two sessions wrote one file".to_owned());
            }
            Line::Session(Format { format }) => {
                return Err(format!("the plug-in writes format {format}, not {FORMAT}"));
            }
            Line::Begin(Named { id }) => *self.running.entry(id).or_default() += 1,
            Line::End(end) => self.end(*end),
            Line::Source(source) if source.number == self.read.sources.len() => {
                let text = self.paths.text(&source.text);
                let text = text.chars().take(MOST_SOURCE_CHARACTERS).collect();
                self.read.sources.push(text);
            }
            Line::Source(_) => return Err("the plug-in's sources are out of order".to_owned()),
            Line::Stuck(Stuck { id, error }) => drop(self.stuck.insert(id, error)),
            Line::InternalError(Said { error }) => self.internal_error = Some(error),
            Line::Finish => self.finished = true,
        }
        Ok(())
    }

    fn end(&mut self, end: End) {
        self.no_more_running(&end.id);
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
        if let Some(error) = self.stuck.remove(&end.id) {
            result = self.stuck_case(&error);
        }
        let id = self.paths.text(&end.id).into_owned();
        self.read.add(&id, result);
    }

    fn no_more_running(&mut self, id: &str) {
        if let Some(times) = self.running.get_mut(id) {
            *times -= 1;
            if *times == 0 {
                self.running.remove(id);
            }
        }
    }

    fn finish(mut self, ended: Ended) -> Result<Read, String> {
        if !self.began {
            return Err("pytest did not load the plug-in, or was stopped before it did".to_owned());
        }
        for (id, error) in std::mem::take(&mut self.stuck) {
            self.no_more_running(&id);
            let result = self.stuck_case(&error);
            let id = self.paths.text(&id).into_owned();
            self.read.add(&id, result);
        }
        let status = match ended {
            Ended::Timeout => CaseStatus::TimedOut,
            _ => CaseStatus::Crashed,
        };
        let running: Vec<_> = std::mem::take(&mut self.running).into_keys().collect();
        for id in &running {
            let error = "its process ended while it was running".to_owned();
            let result = CaseResult {
                error: Some(error),
                ..CaseResult::new(status)
            };
            self.read.add(&self.paths.text(id), result);
        }
        if !self.finished {
            let running = running.iter().take(MOST_RUNNING);
            let running = running.map(|id| clipped(&self.paths.text(id)));
            self.read.fault = Some(ResultsFault::EndedEarly(running.collect()));
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
            (
                format!("{session}\n{}\n", " ".repeat(MOST_LINE_BYTES + 1)),
                "longer than 16 MiB",
            ),
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

    /// CA-48
    #[test]
    fn a_file_that_means_harm_is_read_or_refused_at_once() {
        let session = r#"{"event":"session","format":1}"#;
        let begins: String = (0..50_000)
            .map(|at| format!("{{\"event\":\"begin\",\"id\":\"{at}\"}}\n"))
            .collect();
        let ends: String = (0..50_000)
            .map(|at| format!("{{\"event\":\"end\",\"id\":\"{at}\",\"status\":\"passed\"}}\n"))
            .collect();
        let found = read(
            format!("{session}\n{begins}{ends}").as_bytes(),
            Ended::Finished,
            &paths(),
        );
        assert_eq!(found.expect("lines").cases.len(), 50_000);
        let nested = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let value =
            format!(r#"{{"event":"end","id":"a","status":"passed","values":[["v",{nested}]]}}"#);
        let error = read(
            format!("{session}\n{value}\n").as_bytes(),
            Ended::Finished,
            &paths(),
        );
        assert!(error.expect_err("refused").contains("recursion limit"));
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
