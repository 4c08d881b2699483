//! Every `unsafe` and every system call, one module per mechanism.
