//! Rules of the core group's kinds and of the small groups around it.

pub mod prepare;
