//! JUnit files, as many programs write them. No entity is expanded but those of XML itself and characters by number; what
//! a file declares is not looked at.

use quick_xml::XmlVersion;
use quick_xml::events::{BytesStart, Event};
use quick_xml::reader::Reader;

use super::super::case::{CaseResult, CaseStatus};
use super::super::output::Output;
use super::super::paths::Paths;
use super::super::text::last_lines;
use super::Read;

/// Elements in elements: suites nest a few deep.
const MOST_DEPTH: usize = 100;
const MOST_ATTRIBUTES: usize = 100;

pub(super) fn read(bytes: &[u8], paths: &Paths) -> Result<Read, String> {
    // Programs print what they like, and some loggers pass it on as it is.
    let text = String::from_utf8_lossy(bytes);
    let mut reader = Reader::from_str(text.trim_start_matches('\u{feff}'));
    reader.config_mut().expand_empty_elements = true;
    let mut walk = Walk::new(paths);
    loop {
        let event = reader.read_event();
        let place = || format!("at byte {}", reader.buffer_position());
        let event =
            event.map_err(|error| format!("its JUnit file is damaged {}: {error}", place()))?;
        let done = walk.take(event);
        if done.map_err(|error| format!("its JUnit file is damaged {}: {error}", place()))? {
            return Ok(walk.read);
        }
    }
}

struct Walk<'a> {
    paths: &'a Paths,
    read: Read,
    /// The names of the elements around this place.
    open: Vec<String>,
    ended: bool,
    case: Option<Case>,
}

/// A case that is being read.
#[derive(Default)]
struct Case {
    id: String,
    duration_s: Option<f64>,
    status: Option<CaseStatus>,
    message: String,
    error: String,
    stdout: String,
}

impl<'a> Walk<'a> {
    fn new(paths: &'a Paths) -> Self {
        Self {
            paths,
            read: Read::default(),
            open: Vec::new(),
            ended: false,
            case: None,
        }
    }

    /// Takes the next event; true at the end of the file.
    fn take(&mut self, event: Event<'_>) -> Result<bool, String> {
        match event {
            Event::Start(element) => self.start(&element)?,
            Event::End(_) => self.end()?,
            Event::Text(text) => self.text(&text.xml10_content())?,
            Event::CData(text) => self.text(&text.xml10_content())?,
            Event::GeneralRef(reference) => {
                let named = || quick_xml::escape::resolve_xml_entity(&reference);
                let number = reference
                    .resolve_char_ref()
                    .map_err(|error| error.to_string())?;
                match number {
                    Some(letter) => self.text(letter.encode_utf8(&mut [0; 4]))?,
                    None => self.text(named().ok_or("it uses an entity of its own")?)?,
                }
            }
            Event::Eof if self.open.is_empty() && self.ended => return Ok(true),
            Event::Eof => return Err("it ends too early".to_owned()),
            Event::Empty(_) => unreachable!("empty elements come as a start and an end"),
            Event::Decl(_) | Event::PI(_) | Event::DocType(_) | Event::Comment(_) => {}
        }
        Ok(false)
    }

    fn start(&mut self, element: &BytesStart<'_>) -> Result<(), String> {
        let name = element.local_name().as_ref().to_owned();
        if self.open.is_empty() && !matches!(&*name, "testsuites" | "testsuite") {
            return Err(format!("`{name}` is no element of JUnit files"));
        }
        if self.ended || self.open.len() == MOST_DEPTH {
            return Err("it goes on where it should end".to_owned());
        }
        self.open.push(name.clone());
        match (&*name, &mut self.case) {
            ("testcase", None) => self.case = Some(Case::read(element)?),
            ("testcase", Some(_)) => return Err("a case lies in a case".to_owned()),
            ("failure", Some(case)) => case.went_wrong(CaseStatus::Failed, element)?,
            ("error", Some(case)) => case.went_wrong(CaseStatus::Error, element)?,
            ("skipped" | "disabled", Some(case)) => {
                let expected = attribute(element, "type")?.as_deref() == Some("pytest.xfail");
                let status = [CaseStatus::Skipped, CaseStatus::Xfailed][usize::from(expected)];
                case.went_wrong(status, element)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), String> {
        let name = self.open.pop().ok_or("it goes on where it should end")?;
        self.ended = self.open.is_empty();
        if name == "testcase"
            && let Some(case) = self.case.take()
        {
            let id = self.paths.text(&case.id).into_owned();
            self.read.add(&id, case.result(self.paths));
        }
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<(), String> {
        match (self.open.last().map(String::as_str), &mut self.case) {
            (None, _) if !text.trim().is_empty() => {
                Err("it has text around its elements".to_owned())
            }
            (Some("failure" | "error" | "skipped"), Some(case)) => {
                case.error.push_str(text);
                Ok(())
            }
            (Some("system-out"), Some(case)) => {
                case.stdout.push_str(text);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl Case {
    fn read(element: &BytesStart<'_>) -> Result<Self, String> {
        let name = attribute(element, "name")?.ok_or("a case has no name")?;
        let id = match attribute(element, "classname")? {
            Some(class) if !class.is_empty() => format!("{class}::{name}"),
            _ => name,
        };
        let unrun = attribute(element, "status")?.as_deref() == Some("notrun");
        let seconds = attribute(element, "time")?.and_then(|time| time.trim().parse().ok());
        Ok(Self {
            id,
            duration_s: seconds.filter(|time: &f64| time.is_finite()),
            status: unrun.then_some(CaseStatus::Skipped),
            ..Self::default()
        })
    }

    /// Takes what went wrong. An error outweighs a failure, and both a skip.
    fn went_wrong(&mut self, status: CaseStatus, element: &BytesStart<'_>) -> Result<(), String> {
        let weight = |status| match status {
            Some(CaseStatus::Error) => 3,
            Some(CaseStatus::Failed) => 2,
            None => 0,
            _ => 1,
        };
        if weight(Some(status)) > weight(self.status) {
            self.status = Some(status);
        }
        if self.message.is_empty() {
            self.message = attribute(element, "message")?.unwrap_or_default();
        }
        Ok(())
    }

    fn result(self, paths: &Paths) -> CaseResult {
        let status = self.status.unwrap_or(CaseStatus::Passed);
        // Most programs begin the text with the message; some give one of the two.
        let error = match self.error.contains(&self.message) {
            true => self.error,
            false => format!("{}\n{}", self.message, self.error),
        };
        let error = last_lines(paths.text(&error).trim());
        CaseResult {
            duration_s: self.duration_s,
            output: Output::of(self.stdout.as_bytes(), paths),
            error: (!error.is_empty()).then_some(error),
            ..CaseResult::new(status)
        }
    }
}

fn attribute(element: &BytesStart<'_>, wanted: &str) -> Result<Option<String>, String> {
    for (at, found) in element.attributes().enumerate() {
        // Each is compared with all before it.
        if at == MOST_ATTRIBUTES {
            return Err("an element has too many attributes".to_owned());
        }
        let found = found.map_err(|error| error.to_string())?;
        if found.key.as_ref() == wanted {
            let value = found.normalized_value(XmlVersion::Implicit1_0);
            return Ok(Some(value.map_err(|error| error.to_string())?.into_owned()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FILE: &str = r#"<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE testsuites>
<testsuites><testsuite name="s" tests="9">
  <properties><property name="p" value="v"/></properties>
  <testcase classname="pkg.test_a" name="test_ok[&lt;1&gt;]" time="0.25"><system-out>said &amp; done&#10;<![CDATA[<x>]]></system-out></testcase>
  <testcase classname="pkg.test_a" name="test_bad" time="1,5"><failure message="assert 1 == 2">trace
assert 1 == 2</failure></testcase>
  <testcase classname="pkg.test_a" name="test_broken"><error message="ValueError: in /slot/1/a.py">at /slot/1/a.py:3</error></testcase>
  <testcase classname="pkg.test_a" name="test_skip"><skipped type="pytest.skip" message="no"/></testcase>
  <testcase classname="pkg.test_a" name="test_xfail"><skipped type="pytest.xfail" message=""/></testcase>
  <testcase name="test_ok"/>
  <testcase name="test_ok"><failure/><error/></testcase>
  <testcase name="off" status="notrun"/>
  <testsuite><testcase classname="" name="deep"><system-err>not kept</system-err></testcase></testsuite>
</testsuite></testsuites>
"#;

    fn statuses(text: &str) -> Vec<String> {
        let read = read(text.as_bytes(), &Paths::default()).expect("a JUnit file");
        let line = |(id, case): (&String, &CaseResult)| format!("{id} {}", case.status);
        read.cases.iter().map(line).collect()
    }

    /// CA-48
    #[test]
    fn each_case_has_its_status() {
        assert_eq!(
            statuses(FILE),
            [
                "deep passed",
                "off skipped",
                "pkg.test_a::test_bad failed",
                "pkg.test_a::test_broken error",
                "pkg.test_a::test_ok[<1>] passed",
                "pkg.test_a::test_skip skipped",
                "pkg.test_a::test_xfail xfailed",
                "test_ok passed",
                "test_ok#2 error",
            ]
        );
        let paths = Paths::new([("/slot/1", "/repo")]);
        let read = read(FILE.as_bytes(), &paths).expect("a JUnit file");
        let case = |id: &str| &read.cases[id];
        assert_eq!(
            case("pkg.test_a::test_ok[<1>]").output.text,
            "said & done\n<x>"
        );
        assert_eq!(case("pkg.test_a::test_ok[<1>]").duration_s, Some(0.25));
        assert_eq!(case("pkg.test_a::test_bad").duration_s, None);
        assert_eq!(
            case("pkg.test_a::test_bad").error.as_deref(),
            Some("trace\nassert 1 == 2")
        );
        assert_eq!(
            case("pkg.test_a::test_broken").error.as_deref(),
            Some("ValueError: in /repo/a.py\nat /repo/a.py:3")
        );
        assert_eq!(case("test_ok").error, None);
    }

    /// CA-48
    #[test]
    fn a_file_cut_anywhere_is_no_result() {
        for end in 0..FILE.trim_end().len() {
            let cut = &FILE.as_bytes()[..end];
            assert!(read(cut, &Paths::default()).is_err(), "{end}");
        }
    }

    /// CA-48
    #[test]
    fn what_is_no_junit_file_is_refused_with_a_reason() {
        let table = [
            ("", "ends too early"),
            ("not xml", "text around"),
            ("<html></html>", "`html` is no element"),
            ("<testsuite><testcase/></testsuite>", "no name"),
            ("<testsuite></testsuites>", "damaged"),
            ("<testsuite/><testsuite/>", "goes on"),
            ("<testsuite/>more", "text around"),
            (
                "<testsuite><testcase name='a'><testcase name='b'/></testcase></testsuite>",
                "in a case",
            ),
            (
                "<testsuite><testcase name='a' name='b'/></testsuite>",
                "damaged",
            ),
            ("<testsuite><testcase name='&own;'/></testsuite>", "damaged"),
        ];
        for (text, why) in table {
            let error = read(text.as_bytes(), &Paths::default()).expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    /// CA-48
    #[test]
    fn a_file_that_means_harm_is_refused_at_once() {
        let bomb = r#"<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>
            <testsuite><testcase name="x"><system-out>&b;</system-out></testcase></testsuite>"#;
        let error = read(bomb.as_bytes(), &Paths::default()).expect_err("refused");
        assert!(error.contains("entity of its own"), "{error}");
        let attributes: String = (0..1_000_000).map(|at| format!(" a{at}=''")).collect();
        let wide = format!("<testsuite><testcase{attributes}/></testsuite>");
        let error = read(wide.as_bytes(), &Paths::default()).expect_err("refused");
        assert!(error.contains("too many attributes"), "{error}");
        let deep = "<testsuite>".repeat(1_000_000);
        assert!(read(deep.as_bytes(), &Paths::default()).is_err());
    }

    /// CA-48
    #[test]
    fn bytes_that_are_no_text_do_not_hide_the_cases() {
        let text =
            b"<testsuite><testcase name='a'><system-out>\xff</system-out></testcase></testsuite>";
        let read = read(text, &Paths::default()).expect("a JUnit file");
        assert_eq!(read.cases["a"].output.text, "\u{fffd}");
    }

    proptest! {
        /// CA-48
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0_usize..1500) {
            let _any = read(&bytes, &Paths::default());
            let mut file = FILE.as_bytes().to_vec();
            let at = at.min(file.len());
            file.splice(at..at, bytes);
            let _any = read(&file, &Paths::default());
        }
    }
}
