//! Takes the socket, dies with the engine, serves.

fn main() {}
