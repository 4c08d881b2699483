//! The command line: batch (EX-99 to EX-104).
