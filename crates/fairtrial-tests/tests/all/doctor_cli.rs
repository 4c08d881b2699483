//! The command line: doctor.
