//! The token file: `TOKEN,USER,UID[,"GROUP,GROUP"]` a line.

use std::collections::HashMap;

use sha2::{Digest, Sha256};

use crate::auth::UserInfo;

/// Tokens known from a file.
#[derive(Default)]
pub struct StaticTokens(HashMap<[u8; 32], UserInfo>);

impl StaticTokens {
    /// Reads the text of a token file.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut tokens = Self::default();
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let fields = fields(line);
            let [token, name, uid, groups @ ..] = fields.as_slice() else {
                return Err(format!("line {} of the token file needs token, user and uid", index + 1));
            };
            if token.is_empty() {
                return Err(format!("line {} of the token file has an empty token", index + 1));
            }
            let groups = groups.first().map(String::as_str).unwrap_or_default();
            let groups = groups.split(',').map(str::trim).filter(|group| !group.is_empty());
            let user = UserInfo {
                name: name.clone(),
                uid: uid.clone(),
                groups: groups.map(str::to_owned).collect(),
                ..UserInfo::default()
            };
            tokens.add(token, user);
        }
        Ok(tokens)
    }

    /// Adds a token.
    pub fn add(&mut self, token: &str, user: UserInfo) {
        self.0.insert(Sha256::digest(token).into(), user);
    }

    /// The user of a token. Looked up by hash, so that the time taken tells nothing about the tokens.
    pub fn user(&self, token: &str) -> Option<UserInfo> {
        let hash: [u8; 32] = Sha256::digest(token).into();
        self.0.get(&hash).cloned()
    }
}

/// Fields of a line of CSV; quoted ones may contain commas and doubled quotes.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    let mut chars = line.trim().chars().peekable();
    while let Some(c) = chars.next() {
        let last = fields.len() - 1;
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                fields[last].push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            c if c.is_whitespace() && !quoted && fields[last].is_empty() => {}
            c => fields[last].push(c),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_file() {
        let tokens = StaticTokens::parse("t1,bob,7\n\nt2, eve ,8,\"a,b c\"\nt3,x,\n").expect("valid");
        let user = |token| tokens.user(token).map(|user| (user.name, user.uid, user.groups));
        assert_eq!(user("t1"), Some(("bob".into(), "7".into(), vec![])));
        assert_eq!(user("t2"), Some(("eve ".into(), "8".into(), vec!["a".into(), "b c".into()])));
        assert_eq!(user("t3"), Some(("x".into(), String::new(), vec![])));
        assert_eq!(user("t4"), None);
        assert!(StaticTokens::parse("t1,bob").is_err() && StaticTokens::parse(",bob,1").is_err());
    }
}
