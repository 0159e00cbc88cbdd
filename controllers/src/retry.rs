//! What answers of the API mean for a controller.

use kube::Error;

/// True if the object is not there.
pub fn is_not_found(error: &Error) -> bool {
    matches!(error, Error::Api(s) if s.code == 404)
}

/// True if somebody else wrote first.
pub fn is_conflict(error: &Error) -> bool {
    matches!(error, Error::Api(s) if s.code == 409 && s.reason == "Conflict")
}

/// True if an object of that name is there already.
pub fn is_already_exists(error: &Error) -> bool {
    matches!(error, Error::Api(s) if s.code == 409 && s.reason == "AlreadyExists")
}

/// True if the server refused to create in a namespace that is being deleted.
pub fn is_namespace_terminating(error: &Error) -> bool {
    let Error::Api(status) = error else { return false };
    let causes = status.details.iter().flat_map(|d| &d.causes);
    causes.into_iter().any(|c| c.reason == "NamespaceTerminating")
}

/// The server's message, or the error's own text.
pub fn message(error: &Error) -> String {
    match error {
        Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

/// Turns "not there" into success.
pub fn gone_is_fine<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_not_found(&error) => Ok(None),
        Err(error) => Err(error),
    }
}
