//! Dispatch: order, generations, races, prefetch (EX-24 to EX-31).
