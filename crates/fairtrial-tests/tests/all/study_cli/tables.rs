//! Tables that are the same whoever made them.

use fairtrial_tests::Shell;

use super::{draws, ends, files, run, table};

/// ST-30, ST-36, ST-38, ST-76
#[test]
fn masked_tables_are_the_same_bytes_at_any_parallelism() {
    for isolation in ["fresh", "reuse"] {
        let shell = Shell::new();
        draws(&shell, isolation);
        let mut seen = None;
        for jobs in ["1", "2", "8"] {
            let out = format!("out-{jobs}");
            ends(
                &run(&shell, &["run", "study.yaml", "--out", &out, "-j", jobs]),
                0,
            );
            let masked = format!("masked-{jobs}");
            ends(
                &run(
                    &shell,
                    &["export", &out, "--to", &masked, "--mask-volatile"],
                ),
                0,
            );
            let found = files(&shell, &masked);
            assert!(found.len() >= 8, "{:?}", found.keys());
            let firsts = table(&shell, &format!("{masked}/runs.csv"));
            let mut drawn: Vec<_> = firsts.iter().map(|row| &row["primary_outcome"]).collect();
            drawn.sort();
            drawn.dedup();
            assert_eq!(drawn.len(), 12, "each run draws its own numbers");
            match &seen {
                None => seen = Some(found),
                Some(seen) => assert_eq!(*seen, found, "{isolation}, -j {jobs}"),
            }
        }
    }
}
