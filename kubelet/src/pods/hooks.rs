//! Lifecycle hooks.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, LifecycleHandler, Pod};

use super::spec;
use crate::probes::http;
use crate::shared::Shared;

/// A hook over HTTP may take this long.
const HTTP_LIMIT: Duration = Duration::from_secs(60);

/// Runs a hook to its end; `Err` has upstream's message.
pub async fn run(
    shared: &Shared,
    pod: &Pod,
    container: &Container,
    id: &str,
    ip: &str,
    handler: &LifecycleHandler,
) -> Result<(), String> {
    let place = || format!("for Container {:?} in Pod {:?} failed", container.name, spec::full_name(pod));
    if let Some(exec) = &handler.exec {
        let command = exec.command.clone().unwrap_or_default();
        let shown = command.join(" ");
        let failed = |error: String, message: String| {
            Err(format!("Exec lifecycle hook ([{shown}]) {} - error: {error}, message: {message:?}", place()))
        };
        return match shared.cri.exec_sync(id, command.clone(), Duration::ZERO).await {
            Ok(answer) if answer.exit_code == 0 => Ok(()),
            Ok(answer) => {
                let output = [answer.stdout, answer.stderr].concat();
                let error =
                    format!("command '{shown}' exited with {}: {}", answer.exit_code, String::from_utf8_lossy(&output));
                failed(error, String::from_utf8_lossy(&output).into_owned())
            }
            Err(error) => failed(error.to_string(), String::new()),
        };
    }
    if let Some(action) = &handler.http_get {
        let path = action.path.as_deref().unwrap_or_default();
        let answer = http::get(action, container, ip, "kube-lifecycle/1.37", HTTP_LIMIT).await;
        return match answer {
            Ok(answer) if answer.status.as_u16() < 400 => Ok(()),
            Ok(answer) => Err(format!(
                "HTTP lifecycle hook ({path}) {} - error: HTTP probe failed with statuscode: {}",
                place(),
                answer.status.as_u16()
            )),
            Err(error) => Err(format!("HTTP lifecycle hook ({path}) {} - error: {error}", place())),
        };
    }
    if let Some(sleep) = &handler.sleep {
        tokio::time::sleep(Duration::from_secs(sleep.seconds.unsigned_abs())).await;
    }
    Ok(())
}
