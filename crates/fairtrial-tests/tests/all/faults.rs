//! Faults cost what they cost, no more (EX-23).
