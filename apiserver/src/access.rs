//! Who asks, and may they: the seam between the request's way and authentication and authorization.

use http::request::Parts;
use pintle_machinery::status::{ApiError, GroupResource};

use crate::config::{Config, StaticToken};
use crate::http::info::RequestInfo;

/// An authenticated user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserInfo {
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Groups.
    pub groups: Vec<String>,
}

impl UserInfo {
    /// A user of these groups.
    pub fn new(name: &str, groups: &[&str]) -> Self {
        Self { name: name.into(), uid: String::new(), groups: groups.iter().map(|group| (*group).to_owned()).collect() }
    }

    /// Is in the group.
    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }
}

/// Authentication and authorization of the server.
pub struct Auth {
    tokens: Vec<StaticToken>,
}

impl Auth {
    /// From configuration.
    pub fn new(config: &Config) -> Self {
        Self { tokens: config.static_tokens.clone() }
    }

    /// Who asks.
    pub async fn authenticate(&self, parts: &Parts) -> Result<UserInfo, ApiError> {
        if let Some(user) = parts.extensions.get::<UserInfo>() {
            return Ok(user.clone());
        }
        let header = parts.headers.get(http::header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let Some(header) = header else {
            return Ok(UserInfo::new("system:anonymous", &["system:unauthenticated"]));
        };
        let token = header.strip_prefix("Bearer ").unwrap_or_default().trim();
        let known = self.tokens.iter().find(|known| known.token == token).ok_or(ApiError::Unauthorized)?;
        let mut user = UserInfo { name: known.user.clone(), uid: known.uid.clone(), groups: known.groups.clone() };
        user.groups.push("system:authenticated".into());
        Ok(user)
    }

    /// May they.
    pub async fn authorize(&self, user: &UserInfo, info: &RequestInfo) -> Result<(), ApiError> {
        let public = ["/healthz", "/livez", "/readyz", "/version"];
        if user.in_group("system:masters") || public.iter().any(|path| info.path.starts_with(path)) {
            return Ok(());
        }
        let resource = GroupResource::new(&info.group, &info.resource);
        let message = format!("User \"{}\" cannot {} path \"{}\"", user.name, info.verb, info.path);
        Err(ApiError::forbidden(&resource, &info.name, message))
    }
}
