//! Judges that candidates cannot reach (CA-59, CA-60): what they are told, and what is made of their word.

use serde_json::json;

use super::case::{Results, Trust};
use super::end::{CallEnd, Ended};
use super::failure::{CallSummary, Failure, FailureKind};

/// The file that tells a judge how the candidate's command ended, beside its output in `$FAIRTRIAL_CANDIDATE_OUT`.
pub const EXIT_FILE: &str = "exit.json";

/// The content of [`EXIT_FILE`]. Times are not in it: they would differ from run to run.
///
/// ```
/// # use fairtrial_candidates::cases::{CallEnd, exit_json};
/// # let end: CallEnd = serde_json::from_str(r#"{"verdict":"exit","code":3,"signal":null,"wall_s":0.1}"#).unwrap();
/// assert_eq!(exit_json(&end), "{\"verdict\":\"exit\",\"code\":3,\"signal\":null}\n");
/// ```
#[must_use]
pub fn exit_json(end: &CallEnd) -> String {
    let content = json!({"verdict": end.verdict.name(), "code": end.code, "signal": end.signal});
    format!("{content}\n")
}

/// The results of a test command that has a judge: the judge's, with the end of the candidate's own command.
///
/// # Errors
/// The judge did not do its work, so that nothing is known of the candidate: `infra`.
pub fn judged_results(candidate_end: CallEnd, judge: Results) -> Result<Results, Box<Failure>> {
    let why = match (judge.end.ended(), &judge.fault) {
        (Ended::Finished, None) if !judge.cases.is_empty() => None,
        (Ended::Finished, Some(super::ResultsFault::NoResults(why))) => Some(why.clone()),
        _ => Some(judge.end.described()),
    };
    match why {
        None => Ok(Results {
            trust: Trust::Judge,
            end: candidate_end,
            ..judge
        }),
        Some(why) => {
            let message = format!("the judge of test `{}` failed: {why}", judge.test);
            let call = CallSummary::of(&judge);
            Err(Box::new(
                Failure::new(FailureKind::Infra, message).shown_by(call),
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use fairtrial_exec::Verdict;

    use super::super::case::{CaseResult, CaseStatus, ResultsFault};
    use super::super::testing::{end, passed, results};
    use super::*;

    fn judge(verdict: Verdict, fault: Option<ResultsFault>) -> Results {
        Results {
            end: end(verdict),
            fault,
            trust: Trust::Judge,
            ..results("unit", [("a", passed())])
        }
    }

    /// CA-59
    #[test]
    fn a_judge_that_worked_has_the_last_word() {
        let timed_out = end(Verdict::Timeout);
        let found = judged_results(timed_out.clone(), judge(Verdict::Exit, None)).expect("results");
        assert_eq!((found.trust, &found.end), (Trust::Judge, &timed_out));
        assert_eq!(found.cases["a"], passed());
        let no = results("unit", [("a", CaseResult::new(CaseStatus::Failed))]);
        let found = judged_results(end(Verdict::Ok), no).expect("results");
        assert_eq!(found.cases["a"].status, CaseStatus::Failed);
    }

    /// CA-60
    #[test]
    fn a_judge_that_crashed_hung_or_spoke_nonsense_is_infra() {
        let nonsense = ResultsFault::NoResults("its JUnit file is damaged".to_owned());
        let early = ResultsFault::EndedEarly(Vec::new());
        let table = [
            (judge(Verdict::Signal, None), "signal"),
            (judge(Verdict::Timeout, None), "timeout"),
            (judge(Verdict::MemoryLimit, None), "memory limit"),
            (judge(Verdict::SetupFailed, None), "setup failed"),
            (
                judge(Verdict::Ok, Some(nonsense)),
                "its JUnit file is damaged",
            ),
            (judge(Verdict::Exit, Some(early)), "exit"),
        ];
        for (judge, why) in table {
            let failure = judged_results(end(Verdict::Ok), judge).expect_err(why);
            assert_eq!((failure.kind, failure.retry), (FailureKind::Infra, false));
            assert_eq!(
                failure.message,
                format!("the judge of test `unit` failed: {why}")
            );
        }
    }
}
