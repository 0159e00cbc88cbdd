//! Known failures: data that may only shrink.
