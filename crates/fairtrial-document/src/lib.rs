//! Files with places: YAML 1.1 and JSON as nodes, faults that point, values as Python knows them.
//!
//! What keys a file may have, and what they mean, is for others to say.
//! Its modules are public since those who read files of their own name many of their parts.

pub mod canonical;
pub mod fault;
pub mod file;
pub mod json_text;
pub mod moment;
pub mod node;
pub mod number;
pub mod value;
pub mod yaml;
