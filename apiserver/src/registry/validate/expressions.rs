//! What is wrong with an expression (CEL) that can be told without types: that it is none, and names that nobody declared.
//! What is not understood here counts as right.

/// Names that every expression knows, besides its variables: types, and what its functions belong to.
const KNOWN: [&str; 30] = [
    "Object",
    "JSONPatch",
    "jsonpatch",
    "bool",
    "bytes",
    "cel",
    "cidr",
    "double",
    "duration",
    "dyn",
    "false",
    "format",
    "google",
    "int",
    "ip",
    "isIP",
    "list",
    "map",
    "math",
    "null",
    "null_type",
    "optional",
    "optional_type",
    "quantity",
    "semver",
    "sets",
    "string",
    "strings",
    "timestamp",
    "true",
];
/// Names like those that are types of types and numbers, or words that are no names.
const WORDS: [&str; 4] = ["in", "type", "uint", "url"];
/// Functions whose first argument names what the others are about.
const MACROS: [&str; 9] =
    ["all", "exists", "exists_one", "existsOne", "filter", "map", "transformList", "transformMap", "bind"];

/// A part of an expression, with the character at which it starts.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Token<'a> {
    Name(&'a str),
    Literal(&'a str),
    Sign(&'a str),
}

/// What is wrong, in the compiler's words, if anything.
pub fn fault(expression: &str, variables: &[&str]) -> Option<String> {
    let (at, words) = match tokens(expression) {
        Ok(tokens) => syntax(&tokens).or_else(|| unknown(&tokens, variables))?,
        Err(None) => return None,
        Err(Some(fault)) => fault,
    };
    let dots = ".".repeat(at);
    Some(format!("compilation failed: ERROR: <input>:1:{}: {words}\n | {expression}\n | {dots}^", at + 1))
}

type Fault = (usize, String);

/// The parts. `Err(None)`: it has something that is not understood here.
fn tokens(expression: &str) -> Result<Vec<(usize, Token<'_>)>, Option<Fault>> {
    const SIGNS: [&str; 25] = [
        "==", "!=", "<=", ">=", "&&", "||", "<", ">", "!", "+", "-", "*", "/", "%", "(", ")", "[", "]", "{", "}", ".",
        ",", ":", "?", "=",
    ];
    let mut tokens = Vec::new();
    let mut rest = expression;
    while let Some(first) = rest.chars().next() {
        let at = expression[..expression.len() - rest.len()].chars().count();
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let length = if first.is_whitespace() {
            first.len_utf8()
        } else if first.is_ascii_alphabetic() || first == '_' {
            let length = rest.find(|c| !word(c)).unwrap_or(rest.len());
            // Strings may have letters before them, and lines may be comments: that is for the compiler.
            if rest[length..].starts_with(['\'', '"']) {
                return Err(None);
            }
            tokens.push((at, Token::Name(&rest[..length])));
            length
        } else if first.is_ascii_digit() {
            let length = rest.find(|c| !word(c) && c != '.').unwrap_or(rest.len());
            tokens.push((at, Token::Literal(&rest[..length])));
            length
        } else if first == '\'' || first == '"' {
            let length = rest[1..].find([first, '\\', '\n']).map(|end| end + 2).ok_or(None)?;
            if !rest[..length].ends_with(first) || rest[length..].starts_with(first) {
                return Err(None);
            }
            tokens.push((at, Token::Literal(&rest[..length])));
            length
        } else if rest.starts_with("//") || first == '`' {
            return Err(None);
        } else if let Some(sign) = SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
            tokens.push((at, Token::Sign(&rest[..sign.len()])));
            sign.len()
        } else {
            return Err(Some((at, format!("Syntax error: token recognition error at: '{first}'"))));
        };
        rest = &rest[length..];
    }
    Ok(tokens)
}

/// Two operands without an operator between them, an operator without an operand, a bracket that is not closed.
fn syntax(tokens: &[(usize, Token<'_>)]) -> Option<Fault> {
    let mut open = Vec::new();
    let mut after_operand = false;
    for (index, (at, token)) in tokens.iter().enumerate() {
        let before = index.checked_sub(1).map(|index| tokens[index].1);
        let (text, operand) = match token {
            Token::Name("in") => ("in", false),
            Token::Name(text) | Token::Literal(text) => (*text, true),
            Token::Sign(text) => (*text, false),
        };
        let mismatched = || Some((*at, format!("Syntax error: mismatched input '{text}'")));
        match (token, text) {
            _ if operand && after_operand => {
                return Some((*at, format!("Syntax error: extraneous input '{text}' expecting <EOF>")));
            }
            _ if operand => after_operand = true,
            (_, "(" | "[" | "{") => {
                open.push(text);
                after_operand = false;
            }
            (_, ")" | "]" | "}") => {
                let pair = match text {
                    ")" => "(",
                    "]" => "[",
                    _ => "{",
                };
                let empty = before.is_some_and(|before| matches!(before, Token::Sign("(" | "[" | "{" | ",")));
                if open.pop() != Some(pair) || (!after_operand && !empty) {
                    return mismatched();
                }
                after_operand = true;
            }
            // What may stand before an operand.
            (_, "!" | "-" | "?") => after_operand = false,
            (_, ".") if before.is_none_or(|before| matches!(before, Token::Sign("(" | "," | "&&" | "||"))) => {}
            _ if !after_operand => return mismatched(),
            _ => after_operand = false,
        }
    }
    let end = tokens.last().map_or(0, |(at, token)| match token {
        Token::Name(text) | Token::Literal(text) | Token::Sign(text) => at + text.chars().count(),
    });
    (!after_operand || !open.is_empty()).then(|| (end, "Syntax error: mismatched input '<EOF>'".to_owned()))
}

/// The first name that is neither declared nor bound.
fn unknown(tokens: &[(usize, Token<'_>)], variables: &[&str]) -> Option<Fault> {
    let sign = |index: usize| match tokens.get(index) {
        Some((_, Token::Sign(sign))) => *sign,
        _ => "",
    };
    let name = |index: usize| match tokens.get(index) {
        Some((_, Token::Name(name))) => *name,
        _ => "",
    };
    let mut bound = Vec::new();
    for index in 0..tokens.len() {
        if MACROS.contains(&name(index)) && sign(index + 1) == "(" {
            // There may be two of them.
            bound.extend([name(index + 2), name(index + 4)]);
        }
    }
    for (index, (at, token)) in tokens.iter().enumerate() {
        let Token::Name(own) = token else { continue };
        let before = index.checked_sub(1).map_or("", sign);
        // Fields, functions, and keys of what is built.
        let other = before == "." || before == "?" || sign(index + 1) == "(" || sign(index + 1) == ":";
        let known = KNOWN.contains(own) || WORDS.contains(own) || variables.contains(own) || bound.contains(own);
        if !other && !known {
            return Some((*at, format!("undeclared reference to '{own}' (in container '')")));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_right_is_let_through() {
        for expression in [
            "true",
            "object.metadata.name == 'x'",
            "object.spec.replicas <= 5 && !has(object.metadata.labels)",
            "object.spec.containers.all(c, c.image.startsWith('a/')) || size(object.x) > 0",
            "object.items.map(i, i.name).exists(n, n in ['a', \"b\"])",
            "Object{spec: Object.spec{replicas: 1, names: [], m: {'a': -1}}}",
            "[JSONPatch{op: \"add\", path: \"/a\", value: 5}]",
            "type(object) == string ? 1u : 0x1",
            "r'raw' + b\"bytes\"",
            "object.?a.orValue('x')[0].b",
            "object.metadata.labels['a.b/c'] == \"it's\"",
            "// a comment\ntrue",
            "-1 + 2 * (3 - -4) % 5",
            "object.a.matches('^\\\\d+$')",
            "object.x.transformMap(k, v, k + v)",
        ] {
            assert_eq!(fault(expression, &["object"]), None, "{expression}");
        }
    }

    #[test]
    fn what_is_none_and_what_nobody_knows() {
        for (expression, expected) in [
            ("text", "1: undeclared reference to 'text' (in container '')\n | text\n | ^"),
            ("1 + x.y", "5: undeclared reference to 'x' (in container '')\n | 1 + x.y\n | ....^"),
            ("a b", "3: Syntax error: extraneous input 'b' expecting <EOF>\n | a b\n | ..^"),
            ("ümlaut", "1: Syntax error: token recognition error at: 'ü'\n | ümlaut\n | ^"),
            ("x.y.", "5: Syntax error: mismatched input '<EOF>'\n | x.y.\n | ....^"),
            ("a..b", "3: Syntax error: mismatched input '.'\n | a..b\n | ..^"),
            ("(true", "6: Syntax error: mismatched input '<EOF>'\n | (true\n | .....^"),
        ] {
            let told = fault(expression, &["object"]).unwrap_or_default();
            assert_eq!(told, format!("compilation failed: ERROR: <input>:1:{expected}"), "{expression}");
        }
    }
}
