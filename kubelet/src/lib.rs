//! Node agent: pods over CRI.

pub mod container;
pub mod pods;
pub mod quantity;
