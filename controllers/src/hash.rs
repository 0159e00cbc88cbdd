//! The short hash that names revisions: FNV-1a over a canonical form, spelled in letters that make no words.

use serde::Serialize;

const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Hash of a value and of how often it collided before, as it appears in names and labels.
pub fn short<T: Serialize>(value: &T, collisions: Option<i32>) -> String {
    let mut bytes = serde_json::to_vec(value).unwrap_or_default();
    if let Some(count) = collisions {
        bytes.extend_from_slice(&i64::from(count).to_le_bytes());
    }
    safe_encode(fnv1a(&bytes))
}

/// A number in characters that are allowed in names and unlikely to spell anything.
pub fn safe_encode(number: u32) -> String {
    number.to_string().bytes().map(|b| ALPHABET[usize::from(b) % ALPHABET.len()] as char).collect()
}

/// FNV-1a, 32 bits.
pub fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fnv_vectors() {
        assert_eq!(fnv1a(b""), 0x811c_9dc5);
        assert_eq!(fnv1a(b"a"), 0xe40c_292c);
        assert_eq!(fnv1a(b"foobar"), 0xbf9c_f968);
    }

    #[test]
    fn collisions_change_the_name() {
        assert_ne!(short(&"x", None), short(&"x", Some(1)));
        assert_eq!(short(&"x", Some(2)), short(&"x", Some(2)));
        assert!(short(&"x", None).bytes().all(|b| ALPHABET.contains(&b)));
    }
}
