//! Sets of completion indexes in their short form: `1,3-5,7`.

use std::collections::BTreeSet;

/// Reads the short form; what is malformed is left out.
pub fn parse(text: &str) -> BTreeSet<i32> {
    let mut set = BTreeSet::new();
    for part in text.split(',').filter(|p| !p.is_empty()) {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(from), Ok(to)) = (from.parse::<i32>(), to.parse::<i32>()) {
            set.extend(from..=to);
        }
    }
    set
}

/// Writes the short form: two neighbours stand alone, three and more as a range.
pub fn format(set: &BTreeSet<i32>) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut run: Option<(i32, i32)> = None;
    let mut close = |run: Option<(i32, i32)>| match run {
        Some((from, to)) if from == to => parts.push(from.to_string()),
        Some((from, to)) if from + 1 == to => parts.push(format!("{from},{to}")),
        Some((from, to)) => parts.push(format!("{from}-{to}")),
        None => {}
    };
    for &index in set {
        run = match run {
            Some((from, to)) if to + 1 == index => Some((from, index)),
            other => {
                close(other);
                Some((index, index))
            }
        };
    }
    close(run);
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        for text in ["", "0", "0,1", "0-2", "1,3-5,7", "0,1,3,4", "10-1000"] {
            assert_eq!(format(&parse(text)), text);
        }
        assert!(parse("x,1-y").is_empty());
    }
}
