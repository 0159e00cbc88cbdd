//! What a command tells its user. A reader may leave early, as in `pintle up | head -1`: the work goes on without it, while
//! `println!` would panic.

use std::fmt::Arguments;
use std::io::{Write, stderr, stdout};

/// Prints a line as `println!` does.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => { $crate::output::line(::std::format_args!($($text)*)) };
}

/// Prints a line to standard error as `eprintln!` does.
#[macro_export]
macro_rules! complain {
    ($($text:tt)*) => { $crate::output::complaint(::std::format_args!($($text)*)) };
}

/// [`say!`](crate::say)
pub fn line(text: Arguments<'_>) {
    let _ = writeln!(stdout().lock(), "{text}");
}

/// [`complain!`](crate::complain)
pub fn complaint(text: Arguments<'_>) {
    let _ = writeln!(stderr().lock(), "{text}");
}
