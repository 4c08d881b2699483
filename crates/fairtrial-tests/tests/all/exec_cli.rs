//! The command line: exec (EX-97, EX-98).
