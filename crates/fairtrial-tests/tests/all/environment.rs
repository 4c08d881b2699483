//! The environment of what runs (EX-38 to EX-44).
