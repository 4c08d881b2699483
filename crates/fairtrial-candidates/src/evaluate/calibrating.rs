//! How often each side loops in a bench command, and how much of a run is start-up: found by trying, before a race.

use std::path::Path;

use super::error::EvaluateError;
use super::ground::Tree;
use super::measuring::{BenchErrand, RETRIES, Track};
use crate::evaluation::{BenchFacts, SideTimes, StartupSource};
use crate::measure::{Found, LoopCounts, LoopSearch, Measured, Side};
use crate::spec::Command;

/// What a rough count should take: enough to see how many processors a command uses.
const ROUGH_S: f64 = 0.050;
/// A command for which zero loops take so much longer than one reads zero as something else.
const ZERO_IS_SLOWER: f64 = 1.5;
/// Runs of an interpreter without a program.
const INTERPRETER_RUNS: usize = 5;
/// A warning is given above this share of start-up in whole runs.
const MUCH_STARTUP: f64 = 0.30;

/// What was found of a bench command on the base.
pub(crate) struct Calibrated {
    pub(crate) facts: BenchFacts,
    pub(crate) warning: Option<String>,
}

impl Calibrated {
    /// Whole runs are compared.
    fn gross(loops: Option<u32>) -> Self {
        Self {
            facts: BenchFacts {
                loops: loops.map(u64::from),
                ..BenchFacts::default()
            },
            warning: None,
        }
    }

    fn slope(found: &Found) -> Self {
        let mut base = SideTimes::default();
        base.set_counts(found.counts);
        let mut calibrated = Self::gross(Some(found.counts.high));
        calibrated.facts.sides.insert("base".to_owned(), base);
        calibrated.with_startup(found.startup_s(), found.spread_s, StartupSource::Loops)
    }

    fn with_startup(mut self, startup_s: f64, spread_s: f64, source: StartupSource) -> Self {
        self.facts.startup_s = Some(startup_s);
        self.facts.startup_spread_s = Some(spread_s);
        self.facts.startup_source = Some(source);
        self
    }

    fn warn(mut self, warning: String) -> Self {
        self.warning = Some(warning);
        self
    }
}

/// How the runs of a search ended.
pub(crate) enum Searched {
    Found(Found),
    Failed(SearchFailed),
}

/// No count was found.
pub(crate) struct SearchFailed {
    pub(crate) why: String,
    /// The engine failed, and not the side's command.
    pub(crate) is_infra: bool,
}

impl Track<'_> {
    /// A count of loops that is enough to see what the command is like.
    pub(crate) async fn rough_loops(&self, bench: &BenchErrand) -> Result<u32, EvaluateError> {
        let _held = self.alone().await?;
        let mut loops = 1_u32;
        loop {
            let wall_s = self.base_run(bench, loops).await?.0;
            match wall_s < ROUGH_S && loops < 1_000_000_000 {
                true => loops *= 10,
                false => return Ok(loops),
            }
        }
    }

    /// How often the base loops, or that whole runs are compared. `rough` is the count where none was asked for.
    pub(crate) async fn calibrate(
        &self,
        bench: &BenchErrand,
        rough: Option<u32>,
    ) -> Result<Calibrated, EvaluateError> {
        let takes_loops = bench.command.takes_loops();
        match (rough, bench.loops) {
            (Some(_), _) => self.slope_of_base(bench).await,
            (None, Some(loops)) if takes_loops && loops > 1 => self.try_fixed(bench, loops).await,
            _ => self.whole_runs(bench).await,
        }
    }

    async fn slope_of_base(&self, bench: &BenchErrand) -> Result<Calibrated, EvaluateError> {
        let longest_s = longest_s(bench);
        let (low, one_s) = self.least_loops(bench).await?;
        if low == 1 && 2.0 * one_s > longest_s {
            let why = format!(
                "bench command `{}`: one loop takes {one_s:.1} s, too long for two within its timeout, and it does not \
                 accept 0 loops: whole runs are compared, start-up included",
                bench.name
            );
            return Ok(Calibrated::gross(Some(1)).warn(why));
        }
        let base = &self.trees[&Side::Base];
        let search = LoopSearch::of_base(low, longest_s);
        let found = self.found_on_base(bench, base, search).await?;
        let LoopCounts { low, high } = found.counts;
        if found.is_nothing() {
            let why = format!(
                "{high} loops take no longer than {low}: it does not do its work as often as `{{loops}}` says, or the work \
                 takes no time"
            );
            return Err(bench.fails_in_base(&why));
        }
        let calibrated = Calibrated::slope(&found);
        Ok(match found.is_enough() {
            true => calibrated,
            false => calibrated.warn(format!(
                "bench command `{}`: {high} loops take {:.3} s besides start-up, which varies by {:.3} s: {:.3} s would be \
                 needed for a sure result, and its timeout allows no more loops",
                bench.name, found.net_s, found.spread_s, found.aim_s
            )),
        })
    }

    /// A count that was asked for is used for a slope if its loops take long enough.
    async fn try_fixed(
        &self,
        bench: &BenchErrand,
        loops: u32,
    ) -> Result<Calibrated, EvaluateError> {
        let (low, _) = self.least_loops(bench).await?;
        let counts = LoopCounts { low, high: loops };
        let search = LoopSearch::fixed(counts, longest_s(bench));
        let base = &self.trees[&Side::Base];
        let found = self.found_on_base(bench, base, search).await?;
        if found.is_enough() {
            return Ok(Calibrated::slope(&found));
        }
        let gross_s = found.low_s + found.net_s;
        let (startup_s, spread_s) = (found.startup_s(), found.spread_s);
        let calibrated = Calibrated::gross(Some(loops));
        let calibrated = calibrated.with_startup(startup_s, spread_s, StartupSource::Loops);
        Ok(warned(
            calibrated,
            bench,
            gross_s,
            "`loops: auto` measures the loops alone",
        ))
    }

    /// The whole program is measured. How long its interpreter takes to start is known of Python alone.
    async fn whole_runs(&self, bench: &BenchErrand) -> Result<Calibrated, EvaluateError> {
        let calibrated = Calibrated::gross(bench.loops);
        let Some(command) = without_program(&bench.command) else {
            return Ok(calibrated);
        };
        let _held = self.alone().await?;
        let empty = BenchErrand {
            command,
            loops: None,
            ..bench.clone()
        };
        let base = &self.trees[&Side::Base];
        let mut times = Vec::new();
        for _ in 0..INTERPRETER_RUNS {
            let Ok((ran, _)) = self.run_once(&empty, base, None, 0).await else {
                return Ok(calibrated); // it is not known, then
            };
            match (ran.failed, ran.wall_s) {
                (None, Some(wall_s)) => times.push(wall_s),
                _ => return Ok(calibrated),
            }
        }
        times.sort_by(f64::total_cmp);
        let (startup_s, spread_s) = (times[times.len() / 2], times[times.len() - 2] - times[0]);
        let source = StartupSource::Interpreter;
        let calibrated = calibrated.with_startup(startup_s, spread_s, source);
        let (gross_s, _) = self.base_run(bench, bench.loops.unwrap_or(1)).await?;
        let advice = "give it `{loops}` in its command and `loops: auto` to measure the work alone";
        Ok(warned(calibrated, bench, gross_s, advice))
    }

    /// 0 if the base does with 0 loops what it does with one, but less; else 1. And the time of one.
    async fn least_loops(&self, bench: &BenchErrand) -> Result<(u32, f64), EvaluateError> {
        let _held = self.alone().await?;
        let (one_s, one_reports) = self.base_run(bench, 1).await?;
        let zero = self.base_run(bench, 0).await;
        let accepts_zero = zero.is_ok_and(|(zero_s, zero_reports)| {
            zero_reports == one_reports && zero_s <= one_s * ZERO_IS_SLOWER
        });
        Ok((u32::from(!accepts_zero), one_s))
    }

    /// The time of a run on the base, and whether it wrote to standard output.
    async fn base_run(
        &self,
        bench: &BenchErrand,
        loops: u32,
    ) -> Result<(f64, bool), EvaluateError> {
        let base = &self.trees[&Side::Base];
        let ran = self.run_once(bench, base, Some(loops), 0).await;
        let (measured, reports) = ran.map_err(|why| bench.fails_in_base(&why))?;
        match (measured.failed, measured.wall_s) {
            (None, Some(wall_s)) => Ok((wall_s, reports)),
            (Some(why), _) => Err(bench.fails_in_base(&why)),
            (None, None) => Err(bench.fails_in_base("no time was measured")),
        }
    }

    async fn found_on_base(
        &self,
        bench: &BenchErrand,
        base: &Tree,
        search: LoopSearch,
    ) -> Result<Found, EvaluateError> {
        match self.search(bench, base, search).await? {
            Searched::Found(found) => Ok(found),
            Searched::Failed(failed) => Err(bench.fails_in_base(&failed.why)),
        }
    }

    /// How often a candidate loops, so that its loops take as long as the base's should.
    pub(crate) async fn search_for(
        &self,
        bench: &BenchErrand,
        tree: &Tree,
        aim_s: f64,
    ) -> Result<Option<Searched>, EvaluateError> {
        let Some(base) = bench.slopes.of(&Side::Base) else {
            return Ok(None);
        };
        let search = LoopSearch::of_candidate(base, aim_s, longest_s(bench));
        self.search(bench, tree, search).await.map(Some)
    }

    async fn search(
        &self,
        bench: &BenchErrand,
        tree: &Tree,
        mut search: LoopSearch,
    ) -> Result<Searched, EvaluateError> {
        while let Some(loops) = search.next() {
            let _held = self.alone().await?;
            match self.tried(bench, tree, loops).await {
                Ok(Measured {
                    failed: Some(why), ..
                }) => {
                    return Ok(Searched::Failed(SearchFailed {
                        why: format!("with {loops} loops: {why}"),
                        is_infra: false,
                    }));
                }
                Ok(measured) => search.record(measured),
                Err(why) => {
                    let is_infra = true;
                    return Ok(Searched::Failed(SearchFailed { why, is_infra }));
                }
            }
        }
        Ok(Searched::Found(search.found()))
    }

    /// The engine's own failure is forgiven a few times.
    async fn tried(
        &self,
        bench: &BenchErrand,
        tree: &Tree,
        loops: u32,
    ) -> Result<Measured, String> {
        let mut tries = 0;
        loop {
            match self.run_once(bench, tree, Some(loops), 0).await {
                Ok((measured, _)) => return Ok(measured),
                Err(_) if tries < RETRIES => tries += 1,
                Err(why) => return Err(why),
            }
        }
    }

    async fn alone(&self) -> Result<fairtrial_exec::Held, EvaluateError> {
        let held = self.turns.exclusive("calibration").await;
        held.map_err(EvaluateError::attempting("measuring"))
    }
}

/// Loops are counted so that a run takes half its timeout at most: a busy machine makes it longer.
fn longest_s(bench: &BenchErrand) -> f64 {
    bench.timeout.as_secs_f64() / 2.0
}

fn warned(calibrated: Calibrated, bench: &BenchErrand, gross_s: f64, advice: &str) -> Calibrated {
    let startup_s = calibrated.facts.startup_s.unwrap_or(0.0);
    let share = startup_s / gross_s.max(1e-9);
    if share <= MUCH_STARTUP {
        return calibrated;
    }
    calibrated.warn(format!(
        "bench command `{}`: {:.0}% of a run of the base is start-up, and whole runs are compared; {advice}",
        bench.name,
        share.min(1.0) * 100.0
    ))
}

/// The same interpreter with an empty program, if a command is a Python program by its own account: its start-up without
/// what the program imports.
fn without_program(command: &Command) -> Option<Command> {
    let argv = match command {
        Command::Argv(argv) => argv.clone(),
        Command::Shell(text) => {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || " ./_-=+:@,{}".contains(c);
            let is_simple = text.chars().all(is_plain) && !text.contains('=');
            let words = text.split_whitespace().map(str::to_owned);
            is_simple.then(|| words.collect())?
        }
    };
    let name = Path::new(argv.first()?).file_name()?.to_str()?;
    let version = name.strip_prefix("python")?;
    if !version.chars().all(|c| c.is_ascii_digit() || c == '.') {
        return None;
    }
    // Options before the program change how the interpreter starts. Those with a word of their own are rare.
    let is_option = |word: &&String| word.starts_with('-') && !matches!(word.as_str(), "-m" | "-c");
    let mut empty: Vec<String> = vec![argv[0].clone()];
    let options: Vec<&String> = argv[1..].iter().take_while(is_option).collect();
    if options
        .iter()
        .any(|word| matches!(word.as_str(), "-" | "-X" | "-W"))
    {
        return None;
    }
    empty.extend(options.into_iter().cloned());
    empty.extend(["-c", "pass"].map(str::to_owned));
    Some(Command::Argv(empty))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FA-19
    #[test]
    fn the_start_of_a_python_program_is_that_of_its_interpreter() {
        let argv = |words: &str| Command::Argv(words.split(' ').map(str::to_owned).collect());
        let empty = |words: &str| without_program(&argv(words));
        assert_eq!(empty("python3 bench.py 3"), Some(argv("python3 -c pass")));
        assert_eq!(
            empty(".venv/bin/python -I -m pytest -q"),
            Some(argv(".venv/bin/python -I -c pass"))
        );
        assert_eq!(empty("python3.13t bench.py"), None);
        let shell = |text: &str| without_program(&Command::Shell(text.to_owned()));
        assert_eq!(
            shell("python3.12 bench.py"),
            Some(argv("python3.12 -c pass"))
        );
        for unknown in [
            "python3 a.py && python3 b.py",
            "A=1 python3 a.py",
            "./bench",
            "pythonic a",
            "",
        ] {
            assert_eq!(shell(unknown), None, "{unknown}");
        }
    }
}
