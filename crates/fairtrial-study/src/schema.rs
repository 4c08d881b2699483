//! The keys of a study file: names, types, defaults, in the order of an exported file. Tables only; read by `read.rs`.

/// One key of a mapping.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) key: &'static str,
    pub(crate) kind: Kind,
}

/// What a key's value must be, and what it is where the key is absent.
#[derive(Debug)]
pub(crate) enum Kind {
    /// Text with a default.
    Text(&'static str),
    /// Text that must be there and not blank.
    Name,
    /// Text that must be there.
    Required,
    /// The name or the value of a level, which must be there.
    Level,
    /// Text or null.
    MaybeText,
    /// A list of texts.
    Texts,
    /// A list of texts, not empty.
    SomeTexts,
    /// A list of values, which keep their types.
    Values,
    /// A list of values, not empty.
    SomeValues,
    /// A mapping.
    Map,
    /// A boolean; under `dre-0.2` whatever Python finds true.
    Truth(bool),
    /// A boolean.
    Flag(bool),
    /// An integer of at least so much.
    Int { default: i64, least: i64 },
    /// An integer of at least so much, or null.
    MaybeInt { least: i64 },
    /// An integer of any size, or null.
    MaybeAnyInt { default: i64 },
    /// A number or null.
    MaybeNumber,
    /// One of some words; the first is the default.
    Choice(&'static [&'static str]),
    /// Anything.
    Any,
    /// A list of mappings.
    Records(&'static [Field]),
    /// A mapping or null.
    MaybeRecord(&'static [Field]),
    /// Left to the caller, who finds the node.
    Own,
}

const fn field(key: &'static str, kind: Kind) -> Field {
    Field { key, kind }
}

/// SF-7, then ST-1, then the legacy keys of SF-8.
pub(crate) const STUDY: &[Field] = &[
    field("schema_version", Kind::Any),
    field("study_id", Kind::Name),
    field("title", Kind::Name),
    field("description", Kind::Text("")),
    field("authors", Kind::Texts),
    field("rationale", Kind::Text("")),
    field("tags", Kind::Texts),
    field("hypotheses", Kind::Records(HYPOTHESIS)),
    field("factors", Kind::Own),
    field("blocks", Kind::Own),
    field("constraints", Kind::Own),
    field("design_spec", Kind::Own),
    field("outcomes", Kind::Records(OUTCOME)),
    field("analysis_plans", Kind::Records(ANALYSIS_PLAN)),
    field("run_budget", Kind::Own),
    field("seed_policy", Kind::Own),
    field("output_dir", Kind::MaybeText),
    field("provenance_metadata", Kind::Map),
    field("notes", Kind::Text("")),
    field("problem_ids", Kind::Values),
    field("agent_specs", Kind::Values),
    field("compat", Kind::Own),
    field("agents", Kind::Own),
    field("problems", Kind::Own),
    field("evaluator", Kind::Own),
    field("runner", Kind::Own),
    field("defaults", Kind::Own),
    field("order", Kind::Own),
    field("on_failure", Kind::Own),
    field("sample", Kind::Own),
    field("export", Kind::Own),
    field("primary_outcomes", Kind::Texts),
    field("secondary_outcomes", Kind::Texts),
];

/// SF-9
pub(crate) const FACTOR: &[Field] = &[
    field("name", Kind::Name),
    field("description", Kind::Text("")),
    field(
        "kind",
        Kind::Choice(&["manipulated", "measured", "blocked", "nuisance"]),
    ),
    field("levels", Kind::Own),
    field("dtype", Kind::MaybeText),
    field("default", Kind::Any),
    field("metadata", Kind::Map),
];

/// SF-9
pub(crate) const LEVEL: &[Field] = &[
    field("name", Kind::Name),
    field("value", Kind::Any),
    field("label", Kind::MaybeText),
    field("metadata", Kind::Map),
];

/// SF-10
pub(crate) const BLOCK: &[Field] = &[
    field("name", Kind::Name),
    field("levels", Kind::SomeValues),
    field("metadata", Kind::Map),
];

/// SF-11
pub(crate) const CONSTRAINT: &[Field] = &[
    field("constraint_id", Kind::Name),
    field("description", Kind::Text("")),
    field("expression", Kind::MaybeText),
    field("callable_ref", Kind::MaybeText),
    field("severity", Kind::Text("error")),
];

/// SF-12
pub(crate) const DESIGN: &[Field] = &[
    field("kind", Kind::Text("full_factorial")),
    field(
        "replicates",
        Kind::Int {
            default: 1,
            least: 1,
        },
    ),
    field("randomize", Kind::Truth(false)),
    field("counterbalance", Kind::Truth(false)),
    field("matrix_path", Kind::MaybeText),
    field("n_samples", Kind::MaybeInt { least: 1 }),
    field("center_points", Kind::MaybeInt { least: 0 }),
    field("block_randomization_key", Kind::MaybeText),
    field("options", Kind::Own),
];

/// SF-12: what a design's `options` may hold.
pub(crate) const DESIGN_OPTIONS: &[Field] = &[
    field("bounds", Kind::Any),
    field("backend", Kind::MaybeText),
    field("resolution", Kind::MaybeText),
    field("row_factor", Kind::MaybeText),
    field("column_factor", Kind::MaybeText),
    field("treatment_factor", Kind::MaybeText),
    field("scramble", Kind::Truth(false)),
    field("matrix_path", Kind::MaybeText),
    field("n_samples", Kind::MaybeInt { least: 1 }),
    field("center_points", Kind::MaybeInt { least: 0 }),
    field("block_randomization_key", Kind::MaybeText),
];

/// SF-13
pub(crate) const RUN_BUDGET: &[Field] = &[
    field(
        "replicates",
        Kind::Int {
            default: 1,
            least: 1,
        },
    ),
    field("max_runs", Kind::MaybeInt { least: 1 }),
    field("parallelism", Kind::MaybeInt { least: 1 }),
    field("fail_fast", Kind::Flag(false)),
];

/// SF-13
pub(crate) const SEED_POLICY: &[Field] = &[
    field("base_seed", Kind::MaybeAnyInt { default: 0 }),
    field("strategy", Kind::Text("condition_replicate")),
    field("per_run_offset", Kind::MaybeAnyInt { default: 9973 }),
];

/// SF-14; the last key is a legacy one (SF-8).
pub(crate) const HYPOTHESIS: &[Field] = &[
    field("hypothesis_id", Kind::Name),
    field("label", Kind::Name),
    field("statement", Kind::Name),
    field(
        "kind",
        Kind::Choice(&[
            "effect",
            "moderation",
            "mediation",
            "equivalence",
            "robustness",
            "exploratory",
        ]),
    ),
    field("independent_vars", Kind::Texts),
    field("dependent_vars", Kind::Texts),
    field(
        "moderators",
        Kind::Records(&[field("name", Kind::Name), field("levels", Kind::Values)]),
    ),
    field(
        "mediators",
        Kind::Records(&[
            field("name", Kind::Name),
            field("description", Kind::Text("")),
        ]),
    ),
    field(
        "contrast",
        Kind::MaybeRecord(&[
            field("label", Kind::Text("contrast")),
            field("left", Kind::Level),
            field("right", Kind::Level),
            field("operation", Kind::Text("difference")),
        ]),
    ),
    field(
        "direction",
        Kind::Choice(&["different", "greater", "less", "equivalent"]),
    ),
    field("minimum_effect_of_interest", Kind::MaybeNumber),
    field("notes", Kind::Text("")),
    field(LINKED_PLAN, Kind::MaybeText),
];

/// The legacy key of a hypothesis.
pub(crate) const LINKED_PLAN: &str = "linked_analysis_plan_id";

/// SF-15
pub(crate) const OUTCOME: &[Field] = &[
    field("name", Kind::Name),
    field("source_table", Kind::Name),
    field("column", Kind::Name),
    field("aggregation", Kind::Required),
    field("derivation", Kind::MaybeText),
    field("primary", Kind::Truth(false)),
    field("expected_type", Kind::Text("float")),
    field("missing_data_policy", Kind::Text("drop")),
    field("description", Kind::Text("")),
];

/// SF-16
pub(crate) const ANALYSIS_PLAN: &[Field] = &[
    field("analysis_plan_id", Kind::Name),
    field("hypothesis_ids", Kind::SomeTexts),
    field("tests", Kind::SomeTexts),
    field("outcomes", Kind::Texts),
    field("covariates", Kind::Texts),
    field("random_effects", Kind::Texts),
    field("filters", Kind::Map),
    field("multiple_comparison_policy", Kind::Text("none")),
    field("plots", Kind::Texts),
    field("export_tables", Kind::Texts),
    field("notes", Kind::Text("")),
];

/// ST-4, after the three forms of ST-3.
pub(crate) const BINDING: &[Field] = &[
    field("python", Kind::MaybeText),
    field("command", Kind::Own),
    field("source", Kind::MaybeText),
    field("function", Kind::MaybeText),
    field("timeout", Kind::Own),
    field("time", Kind::Choice(&["wall", "cpu"])),
    field("queue_timeout", Kind::Own),
    field("limits", Kind::Own),
    field("sandbox", Kind::Own),
    field("isolation", Kind::Choice(&["fresh", "reuse"])),
    field(
        "retries",
        Kind::Int {
            default: 0,
            least: 0,
        },
    ),
    field("retry_on", Kind::Own),
    field("retry_delay", Kind::Own),
    field("env", Kind::Own),
    field("pass_env", Kind::Texts),
    field("interpreter", Kind::MaybeText),
    field("python_path", Kind::Texts),
    field("preload", Kind::Texts),
    field("preload_shared", Kind::Texts),
    field("files", Kind::Texts),
    field("version", Kind::MaybeText),
    field("metadata", Kind::Map),
    field("contract", Kind::Own),
];

/// A sandbox in full: its keys are those of calls.
pub(crate) const SANDBOX: &[Field] = &[
    field("level", Kind::Required),
    field("on_missing", Kind::MaybeText),
    field("network", Kind::MaybeText),
    field("read", Kind::Texts),
    field("write", Kind::Texts),
    field("scratch_bytes", Kind::Own),
    field("scratch_inodes", Kind::Own),
    field("address_space", Kind::Own),
    field("devices", Kind::Texts),
    field("cpus", Kind::Own),
];

/// ST-6
pub(crate) const PACKET: &[Field] = &[
    field("family", Kind::Text("unknown")),
    field("brief", Kind::Text("")),
    field("payload", Kind::Map),
    field("metadata", Kind::Map),
    field("evaluator", Kind::Own),
    field("files", Kind::Texts),
];
