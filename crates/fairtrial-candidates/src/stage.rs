//! From what a user gives to what a candidate is: its files after the change, its identity, its rivals of equal text.
//!
//! Pure. The base is asked through [`Base`]; nothing is written, and no process is started. A candidate that cannot be
//! staged is a [`Rejection`], which concerns that candidate alone.

mod base;
mod candidate;
mod content_json;
mod dedup;
mod fault;
mod file_key;
mod files;
mod given;
mod identity;
mod image;
pub(crate) mod jsonl;
mod lineage;
mod myers;
mod overlay;
pub mod patch;
mod path;
mod protect;
mod size;
pub(crate) mod strict_json;
mod tree;
mod unified;

pub use base::{Base, Kind, MemoryBase};
pub use candidate::{Staged, Terms, stage};
pub use dedup::{Arrival, Dedup, Member};
pub use fault::{ApplyError, FileFault, Rejection, StageError};
pub use file_key::{CandidateKey, PYTHON_KEY_FUNCTION, PYTHON_KEY_SOURCE, PythonKeys, is_python};
pub use files::{Mode, Replacement};
pub use given::{Content, Given, Place};
pub use identity::CandidateId;
pub use image::{Image, PostImages};
pub use jsonl::{LineFault, read_jsonl};
pub use lineage::{Ancestor, Lineage, Origin, lineages};
pub use overlay::MOST_BYTES;
pub use path::{PathFault, TreePath};
pub use protect::{DEFAULT_PROTECT, GlobFault, Protect};
pub use size::DiffSize;
pub use tree::{DELETE_LIST, read_tree};
pub(crate) use unified::unified;
