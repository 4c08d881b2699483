//! Files with places: YAML 1.1 and JSON as nodes, faults that point, values as Python knows them; and reports as pages.
//!
//! What keys a file may have and what they mean, and what a report says, is for others to say.
//! Its modules are public since those who read files of their own name many of their parts.

pub mod canonical;
pub mod fault;
pub mod file;
pub mod html;
pub mod json_text;
pub mod moment;
pub mod node;
pub mod number;
pub mod value;
pub mod yaml;
