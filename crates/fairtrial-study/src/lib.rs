//! Study files, designs and plans: what is to run, under which ids and seeds.
//!
//! Reads a study file with every fault and its place, makes the conditions of its design, and walks the runs of its plan.
//! Starts no process and prints nothing.

mod archive;
mod attempt;
mod batches;
mod binding;
mod clock;
mod compat;
mod csv;
mod describe;
mod design;
mod ends;
mod evaluation;
mod execute;
mod expression;
mod files;
mod format;
mod host;
mod identity;
mod import;
mod job;
mod journal;
mod json_out;
mod load;
mod outputs;
mod pickle;
mod plan;
mod program;
pub mod provenance;
mod random;
mod read;
mod ready;
mod recorded;
mod report;
mod resolve;
mod result;
mod run_record;
mod runner;
mod schema;
mod seal;
mod standing;
mod stats;
mod study;
mod tables;
mod yaml_out;

pub(crate) use fairtrial_document::{
    canonical, fault, html, json_text, moment, node, number, value, yaml,
};

pub use archive::bundle;
pub use batches::Pace;
pub use binding::{Binding, Contract, EntryPoint, Packet, Terms};
pub use canonical::{canonical_json, sha256_hex, stable_id};
pub use clock::now_text;
pub use compat::Compat;
pub use csv::CsvWriter;
pub use design::{
    Condition, ConditionId, Design, DesignKind, DesignSpec, DesignTable, RuleCaller, TableRequest,
    TableSummary,
};
pub use execute::{ExecuteError, Mode, Request, Summary, execute};
pub use expression::{ErrorKind, Expression, ExpressionError, Scope};
pub use fault::{Fault, Invalid, Place};
pub use format::Format;
pub use host::{HostBinding, HostBindings, HostFunction, HostPacket, plain_data};
pub use identity::{Aspect, Change};
pub use journal::{
    Evaluation, Finish, History, Holder, Invocation, JournalError, Past, PastInvocation,
    Reader as JournalReader, Stage, Start, StartId, Status,
};
pub use moment::Moment;
pub use plan::{
    Action, Coverage, Decide, Decision, Fresh, Picker, Plan, Reason, RunId, RunSpec, Share, Survey,
    WriteError,
};
pub use program::DRE_CALLER;
pub use random::Random;
pub use ready::Ready;
pub use recorded::{Changed, Recorded, Rescore, Wishes};
pub use report::Report;
pub use run_record::RunRecord;
pub use runner::{End, Stop, Tally};
pub use seal::{journal_damage, named_output_dir, note_files, verify};
pub use standing::{CommonestError, Failure, Standing};
pub use study::{
    Bindings, Block, Constraint, Factor, FailurePolicy, FailureTrigger, Level, OrderPolicy,
    OrderSpec, RunBudget, Sample, SeedPolicy, Study,
};
pub use tables::{Export, ExportError, ExportOptions};
pub use value::Value;
