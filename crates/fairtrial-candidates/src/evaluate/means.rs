//! What measuring needs of this machine, found out before anything is run (CA-72).

use std::collections::BTreeMap;
use std::ffi::OsString;

use fairtrial_exec::{Counted, NoCounters, probe_counters};

use super::counting::Callgrind;
use super::error::EvaluateError;
use super::record::Past;
use crate::measure::Metric;
use crate::spec::{Bench, Spec, Tiebreak};

/// What is there to measure with.
#[derive(Clone, Debug)]
pub(crate) struct Means {
    /// The first of those asked for that can be had.
    metric: Metric,
    /// Whether the processor counts, or why not.
    counters: Result<(), NoCounters>,
    /// What breaks ties, if they are to be broken.
    pub(crate) callgrind: Option<Callgrind>,
}

impl Means {
    /// Looks for what the file asks for; for nothing if nothing is to be measured.
    ///
    /// # Errors
    /// Something of it is not here.
    pub(crate) fn find(
        spec: &Spec,
        host_env: &BTreeMap<OsString, OsString>,
    ) -> Result<Option<Self>, EvaluateError> {
        if spec.bench == Bench::None {
            return Ok(None);
        }
        let counters = probe_counters();
        let metric = choose(&spec.measure.metrics, &counters)?;
        let callgrind = match spec.measure.tiebreak {
            Tiebreak::None => None,
            Tiebreak::Callgrind => Some(Callgrind::find(host_env)?),
        };
        Ok(Some(Self {
            metric,
            counters,
            callgrind,
        }))
    }

    /// By what sides are compared: by what they were, where an earlier process measured already.
    ///
    /// # Errors
    /// That cannot be had any more.
    pub(crate) fn metric_after(&self, past: &Past) -> Result<Metric, EvaluateError> {
        let before = past.races.values().next_back().map(|raced| raced.metric);
        match before {
            None => Ok(self.metric),
            Some(metric) if offered(&self.counters).contains(&metric) => Ok(metric),
            Some(metric) => Err(EvaluateError::Failed(format!(
                "what was measured so far is compared by `{metric}`, which cannot be measured here any more: begin anew in \
                 another directory"
            ))),
        }
    }

    /// What is counted of measured runs.
    pub(crate) fn counted(&self) -> &'static [Counted] {
        match self.counters {
            Ok(()) => &[Counted::Instructions, Counted::Cycles],
            Err(_) => &[],
        }
    }

    /// Why nothing is.
    pub(crate) fn no_counters(&self) -> Option<String> {
        let why = self.counters.as_ref().err();
        why.map(ToString::to_string)
    }
}

fn offered(counters: &Result<(), NoCounters>) -> Vec<Metric> {
    let times = [Metric::Wall, Metric::Cpu];
    let counted = counters.is_ok().then_some(Metric::Instructions);
    times.into_iter().chain(counted).collect()
}

/// The first that is wanted and can be had.
fn choose(wanted: &[Metric], counters: &Result<(), NoCounters>) -> Result<Metric, EvaluateError> {
    let chosen = Metric::choose(wanted, &offered(counters));
    chosen.map_err(|error| {
        // Times can always be had: what is missing is what the processor counts.
        let why = counters.as_ref().err().map(|why| format!(": {why}"));
        EvaluateError::Failed(format!("{error}{}", why.unwrap_or_default()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluation::Machine;
    use crate::measure::Metric::{Cpu, Instructions, Wall};

    fn none() -> Result<(), NoCounters> {
        Err(NoCounters(
            "this machine has no hardware counters".to_owned(),
        ))
    }

    /// CA-72
    #[test]
    fn the_first_of_a_list_that_can_be_had_is_taken() {
        let cases: [(&[Metric], Metric, Option<Metric>); 7] = [
            (&[Wall], Wall, Some(Wall)),
            (&[Cpu], Cpu, Some(Cpu)),
            (&[Instructions], Instructions, None),
            (&[Instructions, Cpu], Instructions, Some(Cpu)),
            (&[Instructions, Wall, Cpu], Instructions, Some(Wall)),
            (&[Cpu, Instructions], Cpu, Some(Cpu)),
            (&[Wall, Cpu, Instructions], Wall, Some(Wall)),
        ];
        for (wanted, with, without) in cases {
            assert_eq!(choose(wanted, &Ok(())).unwrap(), with, "{wanted:?}");
            assert_eq!(choose(wanted, &none()).ok(), without, "{wanted:?}");
        }
        let refused = choose(&[Instructions], &none()).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "no metric of `instructions` can be measured here: this machine has no hardware counters"
        );
    }

    /// CA-72, CA-97: what is compared stays what it was, though more or less can be had by now.
    #[test]
    fn a_resumed_evaluation_compares_as_before() {
        let past = |metric| -> Past {
            let begun = super::super::record::Record::Race {
                round: 1,
                entrants: Vec::new(),
                metric,
                machine: Machine::default(),
                runs_before: 0,
            };
            [begun].into_iter().collect()
        };
        let means = |counters: Result<(), NoCounters>| Means {
            metric: choose(&[Instructions, Cpu], &counters).unwrap(),
            counters,
            callgrind: None,
        };
        let fresh = Past::default();
        assert_eq!(means(Ok(())).metric_after(&fresh).unwrap(), Instructions);
        assert_eq!(means(none()).metric_after(&fresh).unwrap(), Cpu);
        assert_eq!(means(Ok(())).metric_after(&past(Cpu)).unwrap(), Cpu);
        let lost = means(none()).metric_after(&past(Instructions)).unwrap_err();
        assert!(lost.to_string().contains("`instructions`"), "{lost}");
        assert_eq!(means(none()).counted(), []);
        assert_eq!(means(Ok(())).no_counters(), None);
    }
}
