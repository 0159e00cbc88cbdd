//! Expressions (CEL) about objects.

use cel::{Context, Program};
use serde_json::Value;

/// Whether an expression holds for these variables. The error says why it can't be told.
pub fn holds(expression: &str, variables: &[(&str, &Value)]) -> Result<bool, String> {
    let program = Program::compile(expression).map_err(|error| format!("compilation failed: {error}"))?;
    let mut context = Context::default();
    for (name, value) in variables {
        context.add_variable(*name, *value).map_err(|error| error.to_string())?;
    }
    match program.execute(&context).map_err(|error| error.to_string())? {
        cel::Value::Bool(holds) => Ok(holds),
        other => Err(format!("must evaluate to bool, not {other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn expressions() {
        let object = json!({"metadata": {"name": "a", "labels": {"x": "y"}}, "spec": {"replicas": 3}});
        let null = Value::Null;
        let variables = [("object", &object), ("oldObject", &null)];
        for (expression, wanted) in [
            ("object.metadata.name != 'skip-me'", true),
            ("object.spec.replicas > 5", false),
            ("has(object.metadata.labels.x) && object.metadata.labels['x'] == 'y'", true),
            ("oldObject == null", true),
            ("object.metadata.name.matches('^[a-c]$')", true),
        ] {
            assert_eq!(holds(expression, &variables), Ok(wanted), "{expression}");
        }
        for expression in ["object.spec.missing == 1", "1 +", "1", "nobody == 1"] {
            assert!(holds(expression, &variables).is_err(), "{expression}");
        }
    }
}
