//! The language of sessions: plain text, a step after a line that starts with `== `.
//!
//! ```text
//! # A comment. Directives come before the first step:
//! for: resource            (once for each sample; see sessions.rs for the variables)
//! == create with a wrong kind
//! POST $collection?dryRun=All
//! Accept: application/yaml
//!
//! kind: Nonsense
//! metadata: {name: x}
//! -- capture rv metadata.resourceVersion
//! == and by kubectl
//! kubectl get pods -o wide
//! ```
//! `$corpus` is the folder of the corpus. A body is YAML that is sent as JSON, unless `-- raw` follows it. `-- each PATH` compares every entry below a path of
//! the answer on its own. `-- quiet` sends the request without comparing.

use anyhow::{Context, bail};

/// A session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Script {
    /// What the session is repeated for; nothing: it runs once.
    pub each: String,
    /// Its steps.
    pub steps: Vec<Step>,
}

/// One step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// What it shows.
    pub title: String,
    /// What is done.
    pub action: Action,
    /// Body of the request, or standard input of kubectl.
    pub body: String,
    /// The body is sent as it is.
    pub raw: bool,
    /// Answers are not compared.
    pub quiet: bool,
    /// Variable and path of what is kept of the answer.
    pub captures: Vec<(String, String)>,
    /// Paths whose entries are compared one by one.
    pub each: Vec<String>,
}

/// What a step does.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// A request: method, path, headers.
    Request(String, String, Vec<(String, String)>),
    /// A kubectl command line.
    Kubectl(Vec<String>),
}

impl Default for Action {
    fn default() -> Self {
        Action::Kubectl(Vec::new())
    }
}

/// Reads a session.
pub fn parse(text: &str) -> anyhow::Result<Script> {
    let mut script = Script::default();
    let mut blocks: Vec<(String, Vec<&str>)> = Vec::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("== ") {
            blocks.push((title.trim().to_owned(), Vec::new()));
        } else if let Some((_, lines)) = blocks.last_mut() {
            lines.push(line);
        } else if let Some(each) = line.strip_prefix("for:") {
            script.each = each.trim().to_owned();
        } else if !line.is_empty() && !line.starts_with('#') {
            bail!("before the first step: {line}");
        }
    }
    for (title, lines) in blocks {
        script.steps.push(step(&title, &lines).with_context(|| format!("step {title}"))?);
    }
    Ok(script)
}

fn step(title: &str, lines: &[&str]) -> anyhow::Result<Step> {
    let mut step = Step { title: title.to_owned(), ..Step::default() };
    let (first, rest) = lines.split_first().context("it is empty")?;
    let mut rest = rest.iter().peekable();
    if let Some(command) = first.strip_prefix("kubectl ") {
        step.action = Action::Kubectl(words(command)?);
    } else {
        let (method, path) = first.split_once(' ').context("METHOD PATH")?;
        let mut headers = Vec::new();
        while let Some((name, value)) =
            rest.peek().and_then(|line| line.split_once(": ")).filter(|(name, _)| is_header(name))
        {
            headers.push((name.to_owned(), value.trim().to_owned()));
            rest.next();
        }
        step.action = Action::Request(method.to_owned(), path.trim().to_owned(), headers);
    }
    let mut body = Vec::new();
    for line in rest {
        match line.strip_prefix("-- ") {
            Some(directive) => directive_of(&mut step, directive)?,
            None => body.push(*line),
        }
    }
    step.body = body.join("\n").trim_matches('\n').to_owned();
    Ok(step)
}

fn is_header(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_uppercase()) && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-')
}

fn directive_of(step: &mut Step, directive: &str) -> anyhow::Result<()> {
    match directive.split_whitespace().collect::<Vec<_>>()[..] {
        ["raw"] => step.raw = true,
        ["quiet"] => step.quiet = true,
        ["each", path] => step.each.push(path.to_owned()),
        ["capture", name, path] => step.captures.push((name.to_owned(), path.to_owned())),
        _ => bail!("no directive: {directive}"),
    }
    Ok(())
}

/// A command line's words; single and double quotes group.
fn words(text: &str) -> anyhow::Result<Vec<String>> {
    let (mut words, mut word, mut quote, mut inside) = (Vec::new(), String::new(), None, false);
    for c in text.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.push(c),
            (None, '\'' | '"') => (quote, inside) = (Some(c), true),
            (None, c) if c.is_whitespace() => {
                if inside || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                inside = false;
            }
            (None, c) => word.push(c),
        }
    }
    anyhow::ensure!(quote.is_none(), "a quote is not closed: {text}");
    if inside || !word.is_empty() {
        words.push(word);
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_read() {
        let script = parse(
            "# says\nfor: resource\n== one\nPOST /x?a=b\nAccept: application/yaml\n\nkind: A\n-- capture rv metadata.resourceVersion\n\
             == two\nkubectl get pods -o 'jsonpath={.items[*].metadata.name}'\n== three\nGET /y\n-- each paths\n",
        )
        .unwrap();
        assert_eq!(script.each, "resource");
        let [one, two, three] = &script.steps[..] else { panic!("{script:?}") };
        let headers = vec![("Accept".to_owned(), "application/yaml".to_owned())];
        assert_eq!(one.action, Action::Request("POST".into(), "/x?a=b".into(), headers));
        assert_eq!((one.body.as_str(), &one.captures[0].1[..]), ("kind: A", "metadata.resourceVersion"));
        let arguments = ["get", "pods", "-o", "jsonpath={.items[*].metadata.name}"].map(str::to_owned);
        assert_eq!(two.action, Action::Kubectl(arguments.into()));
        assert_eq!(three.each, ["paths"]);
    }

    #[test]
    fn wrong_lines_are_told() {
        assert!(parse("nonsense\n== a\nGET /\n").is_err());
        assert!(parse("== a\nGET /\n-- whatever\n").is_err());
        assert!(parse("== a\nkubectl get 'x\n").is_err());
    }
}
