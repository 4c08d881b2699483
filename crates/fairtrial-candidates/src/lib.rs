//! Rival candidates: measured side by side, judged, ranked.
//!
//! Makes no call to the operating system: it says what is to run, and is told what came of it.

pub mod measure;
