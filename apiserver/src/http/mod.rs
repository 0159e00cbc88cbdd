//! The HTTP side: what was asked for ([`info`]), in which form ([`negotiate`]), and bodies
//! ([`body`], [`compress`]).

pub mod body;
pub mod compress;
pub mod info;
pub mod negotiate;
pub mod query;
