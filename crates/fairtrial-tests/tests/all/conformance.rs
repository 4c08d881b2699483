//! The conformance suite (EX-90, CL-74): what is true of every backend, shown for each.
//!
//! A file per area. A case is a function generic over a [`Factory`], which is all that it is told; `cases!` makes it a test
//! for each kind of backend. What a kind does not show, and why, is in `skips.rs`. The same suite for Python hosts is in
//! `python/tests/conformance`.

/// Makes each case a test for each kind of backend.
macro_rules! cases {
    ($($case:ident,)*) => {
        pub(super) const CASES: &[&str] = &[$(stringify!($case)),*];

        cases!(@kind local_serially, local::Local::serially, $($case,)*);
        cases!(@kind local_with_all_cores, local::Local::with_all_cores, $($case,)*);
        cases!(@kind redis, redis::Redis::start, $($case,)*);
    };
    (@kind $kind:ident, $factory:path, $($case:ident,)*) => {
        mod $kind {
            use crate::conformance::*;

            $(
                #[tokio::test]
                async fn $case() {
                    let begun = scene::Scene::begin(module_path!(), stringify!($case), $factory);
                    if let Some(scene) = begun {
                        super::$case(&scene).await;
                        scene.end().await;
                    }
                }
            )*
        }
    };
}

mod cancel;
mod deadlines;
mod errors;
mod events;
mod isolation;
mod lifecycle;
mod load;
mod local;
mod metrics;
mod redis;
mod scene;
mod skips;
mod values;
mod verdicts;

use std::path::Path;

use fairtrial_exec::Backend;

/// Somebody who starts what a kind of backend needs and makes such backends: the suite's only parameter.
pub(crate) trait Factory: Sized {
    /// The kind.
    type Backend: Backend + 'static;

    /// A backend; making it starts nothing.
    fn make(&self) -> Self::Backend;

    /// One that can be made and asked, and cannot run anything.
    fn make_broken(&self) -> Self::Backend;

    /// Calls that run at a time.
    fn slots(&self) -> usize;

    /// Names of the machines that run calls.
    fn nodes(&self) -> Vec<String>;

    /// A directory that calls can reach, for this test alone.
    fn path(&self) -> &Path;

    /// Ends what was started; fails the test if anything of a call is left.
    fn end(self);
}

/// A variable of every host here, which no call may see.
const SECRET: (&str, &str) = ("A_TOKEN_OF_THE_HOST", "canary");

/// CL-75
#[test]
fn there_are_enough_cases_and_what_is_skipped_is_one_of_them_and_has_a_reason() {
    let areas = [
        cancel::CASES,
        deadlines::CASES,
        errors::CASES,
        events::CASES,
        isolation::CASES,
        lifecycle::CASES,
        load::CASES,
        metrics::CASES,
        values::CASES,
        verdicts::CASES,
    ];
    let cases = areas.concat();
    assert!(cases.len() >= 40, "{}", cases.len());
    for (kind, case, why) in skips::SKIPS {
        assert!(cases.contains(case), "{kind} skips `{case}`, which is none");
        assert!(!why.is_empty(), "{kind} skips `{case}` without a reason");
    }
}
