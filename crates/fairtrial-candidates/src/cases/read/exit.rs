//! One case per command, by how it ended.

use super::super::case::{CaseResult, CaseStatus};
use super::super::end::Ended;
use super::super::text::last_lines;
use super::{Left, Read};

pub(super) fn read(left: &Left<'_>) -> Read {
    let end = &left.end;
    let status = match end.ended() {
        Ended::Finished if end.code.unwrap_or(0) == 0 => CaseStatus::Passed,
        Ended::Finished => CaseStatus::Failed,
        Ended::Timeout => CaseStatus::TimedOut,
        Ended::Crash | Ended::Limit => CaseStatus::Crashed,
        Ended::SetupFailed | Ended::Cancelled => CaseStatus::Error,
    };
    let said = match left.stderr.is_empty() {
        true => &left.stdout.text,
        false => &left.stderr.text,
    };
    let error = last_lines(&format!("{said}\n{}", end.described()));
    let result = CaseResult {
        duration_s: end.wall_s,
        output: left.stdout.clone(),
        error: (status != CaseStatus::Passed).then(|| error.trim_start().to_owned()),
        ..CaseResult::new(status)
    };
    let mut read = Read::default();
    read.add(left.test, result);
    read
}

#[cfg(test)]
mod tests {
    use fairtrial_exec::Verdict;

    use super::super::super::end::CallEnd;
    use super::super::super::output::Output;
    use super::super::super::paths::Paths;
    use super::super::super::testing::{end, left};
    use super::*;

    /// CA-48
    #[test]
    fn a_command_is_one_case_by_its_end() {
        let exited = |verdict, code| CallEnd {
            code: Some(code),
            ..end(verdict)
        };
        let table = [
            (exited(Verdict::Ok, 0), CaseStatus::Passed),
            (exited(Verdict::Exit, 1), CaseStatus::Failed),
            (end(Verdict::Signal), CaseStatus::Crashed),
            (end(Verdict::MemoryLimit), CaseStatus::Crashed),
            (end(Verdict::Timeout), CaseStatus::TimedOut),
            (end(Verdict::SetupFailed), CaseStatus::Error),
        ];
        for (end, status) in table {
            let said = Output::of(b"said", &Paths::default());
            let left = Left {
                stdout: said.clone(),
                ..left("unit", end.clone())
            };
            let read = read(&left);
            let [(id, case)] = &*read.cases.iter().collect::<Vec<_>>() else {
                panic!("one case");
            };
            assert_eq!(
                (id.as_str(), case.status, &case.output),
                ("unit", status, &said)
            );
            let error =
                (status != CaseStatus::Passed).then(|| format!("said\n{}", end.described()));
            assert_eq!(case.error, error);
        }
    }
}
