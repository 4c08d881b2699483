//! The plug-in for pytest: its text, and the environment that loads it (CA-48). Nothing is installed, no configuration
//! is edited, no option is added to the command.

/// The plug-in, to be written as [`PYTEST_PLUGIN_FILE`] into a directory that holds nothing else.
pub const PYTEST_PLUGIN: &str = include_str!("pytest_plugin.py");
/// The name of its file.
pub const PYTEST_PLUGIN_FILE: &str = "fairtrial_cases.py";

const PYTEST_PLUGIN_MODULE: &str = "fairtrial_cases";

/// What the plug-in is told.
#[derive(Clone, Debug, PartialEq)]
pub struct PluginTerms<'a> {
    /// The directory of the plug-in.
    pub directory: &'a str,
    /// The file that its lines go to, which must not be there yet.
    pub results: &'a str,
    /// How long a case may take.
    pub case_timeout_s: Option<f64>,
}

/// Variables that load the plug-in, beside what `given` says of `PYTHONPATH` and `PYTEST_PLUGINS`: those are kept, and
/// added to.
///
/// ```
/// use fairtrial_candidates::cases::{PluginTerms, pytest_environment};
///
/// let terms = PluginTerms { directory: "/plug", results: "/out/cases.jsonl", case_timeout_s: Some(2.5) };
/// let given = |name: &str| (name == "PYTHONPATH").then(|| "src".to_owned());
/// let variables = pytest_environment(&terms, given);
/// assert_eq!(variables[0], ("PYTHONPATH".to_owned(), "src:/plug".to_owned()));
/// assert_eq!(variables[1], ("PYTEST_PLUGINS".to_owned(), "fairtrial_cases".to_owned()));
/// ```
#[must_use]
pub fn pytest_environment(
    terms: &PluginTerms<'_>,
    given: impl Fn(&str) -> Option<String>,
) -> Vec<(String, String)> {
    // An empty entry of PYTHONPATH would be the working directory.
    let added = |name: &str, separator: &str, value: &str| match given(name) {
        Some(before) if !before.is_empty() => format!("{before}{separator}{value}"),
        _ => value.to_owned(),
    };
    let mut variables = vec![
        ("PYTHONPATH", added("PYTHONPATH", ":", terms.directory)),
        (
            "PYTEST_PLUGINS",
            added("PYTEST_PLUGINS", ",", PYTEST_PLUGIN_MODULE),
        ),
        ("FAIRTRIAL_CASES", terms.results.to_owned()),
    ];
    if let Some(limit_s) = terms.case_timeout_s {
        variables.push(("FAIRTRIAL_CASE_TIMEOUT_S", limit_s.to_string()));
    }
    let named = |(name, value): (&str, String)| (name.to_owned(), value);
    variables.into_iter().map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CA-48, CA-49
    #[test]
    fn what_a_test_has_of_its_own_is_kept() {
        let terms = PluginTerms {
            directory: "/plug",
            results: "/r",
            case_timeout_s: None,
        };
        let names = |variables: Vec<(String, String)>| -> Vec<String> {
            variables
                .into_iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect()
        };
        let own = pytest_environment(&terms, |name| Some(format!("my_{}", name.len())));
        assert_eq!(
            names(own),
            [
                "PYTHONPATH=my_10:/plug",
                "PYTEST_PLUGINS=my_14,fairtrial_cases",
                "FAIRTRIAL_CASES=/r"
            ]
        );
        let empty = pytest_environment(&terms, |_| Some(String::new()));
        assert_eq!(empty, pytest_environment(&terms, |_| None));
        assert!(PYTEST_PLUGIN_FILE.starts_with(PYTEST_PLUGIN_MODULE));
    }
}
